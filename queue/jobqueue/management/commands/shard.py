"""`manage.py shard add|list|drain|check|pin|unpin|fence|newspace`: the databases that work is spread over."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.shards import register
from jobqueue.shards.register import Standing
from jobsplatform.commands import VerbCommand, actor, verb_parser
from jobsplatform.errors import Invalid


class Command(VerbCommand):
    help = "Add and drain shards, pin a queue or tenant to some, look at them, check them against control's word."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(
            dest="verb", required=True, metavar="list|add|drain|check|pin|unpin|fence|newspace"
        )
        verb_parser(verbs, "list", help="every shard: its state, slots, id spaces and load")
        verb_parser(verbs, "check", help="is each shard as control says? Exits 1 naming what is not")
        for name, text in (
            (
                "add",
                "let a shard take its part of new work; its database is named by the settings and migrated",
            ),
            ("drain", "give it no new work: its slots move, what it has is worked off and stays readable"),
            (
                "fence",
                "say that it is off and starts nothing: its shares of limits go elsewhere; `add` ends it",
            ),
            ("newspace", "number its jobs anew: after a restore, or a failover that may have lost commits"),
        ):
            verb = verb_parser(verbs, name, help=text)
            verb.add_argument("number", type=_number, metavar="N")
            _add_reason(verb)
        pinned = verb_parser(verbs, "pin", help="keep a queue or tenant on these shards; one: strict order")
        pinned.add_argument("shards", type=_number, nargs="+", metavar="N")
        unpinned = verb_parser(verbs, "unpin", help="let it use every shard again")
        for verb in (pinned, unpinned):
            what = verb.add_mutually_exclusive_group(required=True)
            what.add_argument("--queue", metavar="NAME")
            what.add_argument("--tenant", metavar="SLUG")
            _add_reason(verb)

    def act(self, options: dict[str, Any]) -> None:
        if len(options.get("reason", "")) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        verbs: dict[str, Callable[[dict[str, Any]], None]] = {
            "list": self._list,
            "check": self._check,
            "add": self._add,
            "drain": self._drain,
            "pin": self._pin,
            "unpin": self._unpin,
            "fence": self._fence,
            "newspace": self._new_space,
        }
        verbs[options["verb"]](options)

    def _list(self, options: dict[str, Any]) -> None:
        for standing in register.standings():
            self.stdout.write(line(standing))
        for ring in register.pins():
            shards = ", ".join(map(str, ring.shards))
            self.stdout.write(f"{ring}: on shard{'s' if len(ring.shards) > 1 else ''} {shards}")

    def _check(self, options: dict[str, Any]) -> None:
        found = list(register.faults())
        for fault in found:
            self.stdout.write(fault)
        if found:
            sys.exit(1)
        self.stdout.write("Every shard is as control says.")

    def _add(self, options: dict[str, Any]) -> None:
        left = register.add(options["number"], actor=actor(), reason=options["reason"])
        self._tell(f"Shard {options['number']} takes its part of new work", left)

    def _drain(self, options: dict[str, Any]) -> None:
        left = register.drain(options["number"], actor=actor(), reason=options["reason"])
        self._tell(f"Shard {options['number']} takes no new work", left)

    def _pin(self, options: dict[str, Any]) -> None:
        what = {"queue": options["queue"], "tenant": options["tenant"]}
        left = register.pin(options["shards"], **what, actor=actor(), reason=options["reason"])
        shards = ", ".join(map(str, sorted(set(options["shards"]))))
        self._tell(f"{_subject(options)} is on shards {shards}", left)

    def _unpin(self, options: dict[str, Any]) -> None:
        what = {"queue": options["queue"], "tenant": options["tenant"]}
        left = register.unpin(**what, actor=actor(), reason=options["reason"])
        self._tell(f"{_subject(options)} is on every shard", left)

    def _fence(self, options: dict[str, Any]) -> None:
        register.fence(options["number"], actor=actor(), reason=options["reason"])
        self.stdout.write(f"Shard {options['number']} is fenced: its shares of limits are granted elsewhere.")

    def _new_space(self, options: dict[str, Any]) -> None:
        space = register.new_space(options["number"], actor=actor(), reason=options["reason"])
        self.stdout.write(f"Shard {options['number']} numbers its jobs in space {space} from now on.")

    def _tell(self, what: str, left: int) -> None:
        rest = f"; {left:,} slots are still on their way, the dispatcher goes on with them" if left else ""
        self.stdout.write(f"{what}{rest}.")


def line(standing: Standing) -> str:
    """One shard."""
    state = standing.state + (", fenced" if standing.is_fenced else "")
    spaces = ", ".join(map(str, standing.spaces)) or "none"
    load = "cannot be reached"
    if standing.is_reached:
        load = f"about {standing.waiting or 0:,} waiting, {standing.running or 0:,} running"
    return f"shard {standing.number}: {state}, {standing.slots:,} slots, id spaces {spaces}, {load}"


def _subject(options: dict[str, Any]) -> str:
    return f"Queue {options['queue']}" if options["queue"] else f"Tenant {options['tenant']}"


def _add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", help="for the audit")


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_023:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a shard")
    return int(text)
