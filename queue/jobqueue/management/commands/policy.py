"""`manage.py policy QUEUE …`: show the versions of how a queue shares its starts; make, roll out or take back one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.core.management.base import CommandParser

from jobqueue import policies
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import PolicyVersion, Queue
from jobqueue.policies import Band, QueuePolicy
from jobsplatform.commands import VerbCommand, actor, assigned, key_value
from jobsplatform.errors import Invalid, NotFound
from jobsplatform.instants import format_instant

SETTINGS = ("reserved_share", "ageing_s", "cost_model")


class Command(VerbCommand):
    help = "Without an option: show a queue's policy and its versions. A change is a new version."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", metavar="QUEUE")
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--set",
            dest="assignments",
            type=key_value,
            nargs="+",
            metavar="key=value",
            help=f"a band's name = its weight; {', '.join(SETTINGS)}; none where a setting can be off",
        )
        what.add_argument(
            "--roll-out",
            type=float,
            metavar="SHARE",
            help="this share of claims uses the version on trial; 1: all",
        )
        what.add_argument(
            "--return",
            dest="back",
            action="store_true",
            help="give up the version on trial; without one, go back to the policy before",
        )
        parser.add_argument(
            "--share",
            type=float,
            default=1.0,
            help="with --set: the share of claims that uses it (1: in force)",
        )
        parser.add_argument("--reason", default="", help="for the version and the audit")

    def act(self, options: dict[str, Any]) -> None:
        name, reason = options["queue"], options["reason"]
        if len(reason) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        try:
            queue = policies.by_name(name)
        except NotFound:
            raise NotFound(f"There is no queue {name!r}.") from None
        if options["assignments"]:
            changes = _changes(queue, options["assignments"])
            policies.set_policy(name, changes, share=options["share"], actor=actor(), reason=reason)
        elif options["roll_out"] is not None:
            policies.roll_out(name, options["roll_out"], actor=actor(), reason=reason)
        elif options["back"]:
            policies.return_policy(name, actor=actor(), reason=reason)
        self._show(name)

    def _show(self, name: str) -> None:
        queue = policies.by_name(name)
        trial = queue.trial
        for version in policies.versions(name):
            mark = "*" if version.number == queue.policy_number else " "
            if trial is not None and version.number == trial.scheduling.version:
                mark = f"{trial.share:.0%}"
            self.stdout.write(f"{mark:>4} {_words(version)}")


def _changes(queue: QueuePolicy, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """What `--set` asks for: settings by their names, weights by the bands' names."""
    bands = {band.name: band for band in queue.bands}
    changes = assigned(Queue, [pair for pair in pairs if pair[0] in SETTINGS])
    weights = [pair for pair in pairs if pair[0] not in SETTINGS]
    for name, text in weights:
        if name not in bands:
            known = ", ".join([*bands, *SETTINGS])
            raise Invalid.at(f"/{name}", f"{name} is neither a band nor a setting; there are {known}.")
        bands[name] = _weighted(bands[name], text)
    return changes | ({"bands": tuple(bands.values())} if weights else {})


def _weighted(band: Band, text: str) -> Band:
    if not (text.isascii() and text.isdecimal()):
        raise Invalid.at(f"/{band.name}", f"The weight of {band.name} must be a whole number, not {text!r}.")
    return replace(band, weight=int(text))


def _words(version: PolicyVersion) -> str:
    bands = " ".join(
        f"{band['name']}:{'strict' if band['strict'] else band['weight']}" for band in version.bands
    )
    ageing = "" if version.ageing_s is None else f", ageing {version.ageing_s} s"
    since = "tried only" if version.in_force_from is None else f"from {format_instant(version.in_force_from)}"
    why = f": {version.reason}" if version.reason else ""
    text = f"{version.number}  {bands}, reserved {version.reserved_share:g}, {version.cost_model}{ageing}"
    return f"{text}; {since}, {version.actor}{why}"
