"""`manage.py workers list|drain`: which processes live, and the way to end a worker when it is done."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from jobqueue import processes
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import Process
from jobsplatform.commands import VerbCommand, actor, verb_parser
from jobsplatform.errors import Invalid
from jobsplatform.wording import age, printable


class Command(VerbCommand):
    help = "List the processes that live; let a worker take no more jobs and end when it is done."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|drain")
        verb_parser(verbs, "list", help="every process, with its last sign of life")
        drain = verb_parser(verbs, "drain", help="ask a worker to end when what it runs has ended")
        drain.add_argument("name", metavar="NAME", help="as listed; `all`: every living worker")
        drain.add_argument("--reason", default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        if options["verb"] == "drain":
            if len(options["reason"]) > REASON_CHARS_MAX:
                raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
            names = processes.drain_named(options["name"], actor=actor(), reason=options["reason"])
            self.stdout.write(f"Asked to drain: {', '.join(sorted(names))}.")
            return
        found = processes.living()
        if not found:
            self.stdout.write("No process says that it lives.")
        for process in found:
            self.stdout.write(line(process))


def line(process: Process) -> str:
    """One process."""
    parts = [f"{process.kind} {printable(process.name)}", f"version {process.version}"]
    if process.slots is not None:
        parts.append(f"{process.slots} slots")
    if process.held is not None:
        parts.append(f"holds {process.held}")
    if process.queues is not None:
        parts.append(f"queues {', '.join(process.queues)}")
    silent = process.beat_at < processes.silent_before(timezone.now())
    parts.append(f"{'SILENT for' if silent else 'seen'} {age(process.beat_at)}{'' if silent else ' ago'}")
    if process.drain_asked_at is not None:
        parts.append(f"asked to drain by {printable(process.drain_asked_by)}")
    return ", ".join(parts)
