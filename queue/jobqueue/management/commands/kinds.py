"""`manage.py kinds [list|show|set|sync]`: what is known of kinds of jobs, and what an operator sets for them."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from jobqueue import kinds
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import JobKind
from jobqueue.worker import registry
from jobsplatform.commands import VerbCommand, actor, assigned, key_value, verb_parser
from jobsplatform.errors import Invalid


class Command(VerbCommand):
    help = (
        "List registered kinds of jobs; show one; set what stands in its code's stead (`none`: the code again); "
        "or register what the handlers of this installation declare."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.set_defaults(what="list")
        what = parser.add_subparsers(dest="what", metavar="list|show|set|sync")
        verb_parser(what, "list", help="every registered kind (without an argument, too)")
        verb_parser(what, "show", help="all settings of one, and where each comes from").add_argument("name")
        setter = verb_parser(what, "set", help="settings before which the code's stand back")
        setter.add_argument("name", metavar="NAME")
        setter.add_argument(
            "pairs", type=key_value, nargs="+", metavar="key=value", help=", ".join(kinds.SETTINGS)
        )
        setter.add_argument("--reason", default="", help="for the audit")
        verb_parser(
            what, "sync", help="register what the code declares, as every runworker does at its start"
        )

    def act(self, options: dict[str, Any]) -> None:
        getattr(self, f"_{options['what'] or 'list'}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        found = kinds.listing()
        for kind in found:
            self.stdout.write(f"{kind.name}  {_words(kinds.effective(kind))}")
        if not found:
            self.stdout.write("No kind is registered. None needs to be.")

    def _show(self, options: dict[str, Any]) -> None:
        kind = kinds.by_name(options["name"])
        by = kind.declared_by or "no code yet"
        self.stdout.write(f"{kind.name}, version {kind.version}, declared by {by}")
        for name, value in kinds.effective(kind).items():
            source = (
                "operator"
                if getattr(kind, name) is not None
                else "code"
                if name in kind.declared
                else "queue"
            )
            shown = json.dumps(value) if value is not None else "–"
            self.stdout.write(f"  {name:<16} {shown}  ({source})")

    def _set(self, options: dict[str, Any]) -> None:
        if len(options["reason"]) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        settings = assigned(JobKind, options["pairs"])
        kinds.change(options["name"], settings, actor=actor(), reason=options["reason"])
        self._show(options)

    def _sync(self, options: dict[str, Any]) -> None:
        registry.discover()
        handlers = registry.declared()
        changed = kinds.sync(handlers, actor=actor())
        names = f": {', '.join(changed)}" if changed else ""
        self.stdout.write(f"{len(handlers)} handlers; {len(changed)} kinds changed{names}.")


def _words(values: dict[str, Any]) -> str:
    """The settings that are not the queue's, in one line."""
    shown = {name: value for name, value in values.items() if value not in (None, False, {})}
    parts = [
        name.replace("payload_", "") if name in ("payload_schema", "external_effects") else f"{name}={value}"
        for name, value in shown.items()
    ]
    return ", ".join(parts) or "as the queue has it"
