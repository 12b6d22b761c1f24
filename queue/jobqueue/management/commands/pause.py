"""`manage.py pause (queue|tenant|intake) NAME`: start no more work, or take no more in."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser

from jobqueue import policies
from jobqueue.limits import REASON_CHARS_MAX
from jobsplatform.commands import VerbCommand, actor
from jobsplatform.errors import Invalid
from tenants import registry


class Command(VerbCommand):
    help = (
        "Pause: a queue or a tenant starts no more jobs (running ones end, new ones wait); "
        "`intake` refuses new jobs of a queue."
    )
    is_pause: ClassVar = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["queue", "tenant", "intake"], help="intake is a queue's")
        parser.add_argument("name", metavar="NAME", help="of the queue, or the tenant's slug")
        parser.add_argument("--reason", default="", help="for the audit")
        if self.is_pause:
            parser.add_argument(
                "--for",
                dest="seconds",
                type=float,
                metavar="SECONDS",
                help="of a queue or intake: it goes on by itself after that (until `resume`)",
            )

    def act(self, options: dict[str, Any]) -> None:
        what, name, reason = options["what"], options["name"], options["reason"]
        if len(reason) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        self.switch(what, name, actor=actor(), reason=reason, seconds=options.get("seconds"))
        subject = f"Intake of queue {name}" if what == "intake" else f"{what.title()} {name}"
        self.stdout.write(f"{subject} {'is paused' if self.is_pause else 'goes on'}.")

    def switch(self, what: str, name: str, *, actor: str, reason: str, seconds: float | None) -> None:
        if what == "tenant":
            if seconds is not None:
                raise Invalid.at("/for", "A tenant is paused until it is resumed.")
            registry.pause(name, actor=actor, reason=reason)
        else:
            until = None if seconds is None else policies.after(seconds)
            policies.pause(name, intake=what == "intake", actor=actor, reason=reason, until=until)
