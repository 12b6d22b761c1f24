"""`manage.py dependency list|set|open|close`: what outside systems bear, and how they fare."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from jobqueue import dependencies
from jobqueue.dependencies import Standing
from jobqueue.ids import format_id
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import Dependency
from jobsplatform.commands import VerbCommand, actor, assigned, key_value, verb_parser
from jobsplatform.errors import Invalid, NotFound
from jobsplatform.instants import format_instant


class Command(VerbCommand):
    help = "List dependencies and where they stand; set limits; open a breaker by hand, or close it."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|set|open|close")
        verb_parser(verbs, "list", help="where each stands").add_argument("name", nargs="?", metavar="NAME")
        change = verb_parser(verbs, "set", help="set limits; `none` lifts one")
        change.add_argument("name", metavar="NAME")
        change.add_argument(
            "pairs",
            type=key_value,
            nargs="+",
            metavar="key=value",
            help=", ".join(dependencies.SETTINGS),
        )
        opened = verb_parser(
            verbs, "open", help="start nothing that needs it until `close`; nothing probes it"
        )
        closed = verb_parser(verbs, "close", help="let it go on, ramping up; its breaker judges anew")
        for verb in (opened, closed):
            verb.add_argument("name", metavar="NAME")
        opened.add_argument(
            "--for-s", type=int, metavar="SECONDS", help="close by itself after so long (never)"
        )
        for verb in (change, opened, closed):
            verb.add_argument("--reason", default="", help="for the audit")

    def act(self, options: dict[str, Any]) -> None:
        name, verb, reason = options["name"], options["verb"], options.get("reason", "")
        if len(reason) > REASON_CHARS_MAX:
            raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX} characters.")
        if verb == "set":
            settings = assigned(Dependency, options["pairs"])
            dependencies.set_dependency(name, settings, actor=actor(), reason=reason)
        elif verb == "open":
            dependencies.open_breaker(name, actor=actor(), reason=reason, seconds=options["for_s"])
        elif verb == "close":
            dependencies.close_breaker(name, actor=actor(), reason=reason)
        self._show(name)

    def _show(self, name: str | None) -> None:
        found = dependencies.standings(name)
        if name is not None and not found:
            raise NotFound(f"There is no dependency {name!r}.")
        known = {dependency.name: dependency for dependency in Dependency.objects.all()}
        for standing in found:
            self.stdout.write(line(standing, known.get(standing.name)))


def line(standing: Standing, settings: Dependency | None) -> str:
    """One dependency on one shard."""
    shard = f" (shard {standing.shard})" if standing.shard else ""
    calls = f"{standing.failures:,} of {standing.calls:,} calls failed"
    parts = [f"{standing.name}{shard}: {_breaker(standing)}", f"{standing.running:,} running", calls]
    if standing.limit_now is not None:
        parts[1] += f" of {int(standing.limit_now):,} (at most {settings.max_running if settings else '?'})"
    if settings is not None and settings.rate_per_s is not None:
        parts.append(f"at most {settings.rate_per_s:g} a second")
    if standing.ramp_from is not None:
        parts.append(f"ramping up since {format_instant(standing.ramp_from)}")
    return ", ".join(parts)


def _breaker(standing: Standing) -> str:
    if standing.is_held_open:
        return "held open"
    if standing.breaker == "open" and standing.probe_at is not None:
        return f"open, probes at {format_instant(standing.probe_at)}"
    if standing.breaker == "half_open":
        probe = standing.probe_job_id
        return f"half open, {'nothing probes yet' if probe is None else f'job {format_id(probe)} probes'}"
    return standing.breaker
