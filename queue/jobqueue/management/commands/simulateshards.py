"""`manage.py simulateshards`: the routing over many shards on a virtual clock."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from jobqueue.policy.shard_simulation import Run, Setup, quantile, simulate
from jobqueue.simulating.shard_picture import svg
from jobsplatform.commands import VerbCommand

INVERSION_MS_MAX: Final = 100.0
P0_MS_MAX: Final = 50.0


class Command(VerbCommand):
    """Exit 1: an inversion of over 100 ms, or P0 over 50 ms at the 99th percentile while nothing is away."""

    help = "Run the routing over many shards on a virtual clock: inversions, waits, skew, a shard's fall. No database."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--shards", type=_whole, default=32, metavar="N", help="2 to 256 (32)")
        parser.add_argument(
            "--rate", type=_number, default=56_000.0, metavar="R", help="messages a second (56,000)"
        )
        parser.add_argument("--hubs", type=_whole, default=16, metavar="N", help="processes that claim (16)")
        parser.add_argument(
            "--spare", type=_part, default=0.05, help="slots beyond the need (0.05; negative: overload)"
        )
        parser.add_argument("--seconds", type=_number, default=5.0, help="virtual seconds (5)")
        parser.add_argument(
            "--fall", action="store_true", help="shard 0 falls for the middle third of the time"
        )
        parser.add_argument("--seed", type=_whole, default=1, help="of arrivals (1)")
        parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
        parser.add_argument("--svg", type=Path, metavar="FILE", help="write a picture")

    def act(self, options: dict[str, Any]) -> None:
        if not 2 <= options["shards"] <= 256 or not 1 <= options["hubs"] <= 256:
            raise CommandError("2 to 256 shards, 1 to 256 hubs.")
        if not 0 < options["seconds"] <= 120 or not 0 < options["rate"] <= 1_000_000:
            raise CommandError("Up to 120 seconds, up to 1,000,000 messages a second.")
        third = options["seconds"] / 3
        run = simulate(
            Setup(
                shards=options["shards"],
                rate_per_s=options["rate"],
                hubs=options["hubs"],
                spare=options["spare"],
                seconds=options["seconds"],
                seed=options["seed"],
                falls_at=third if options["fall"] else None,
                heals_at=2 * third if options["fall"] else None,
            )
        )
        if options["svg"] is not None:
            self._draw(options["svg"], run)
        found = document(run)
        self.stdout.write(json.dumps(found) if options["json"] else lines(found))
        if found["inversion_ms"]["max"] > INVERSION_MS_MAX or found["p0_p99_ms"] > P0_MS_MAX:
            sys.exit(1)

    def _draw(self, path: Path, run: Run) -> None:
        setup = run.setup
        summary = f"{setup.shards} shards, {setup.rate_per_s:,.0f} messages a second"
        if setup.falls_at is not None:
            summary += ", one falls and comes back"
        elif setup.spare < 0:
            summary += f", slots for {1 + setup.spare:.0%} of them"
        try:
            path.write_text(svg(run, summary), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"The picture could not be written: {error}.") from error


def document(run: Run) -> dict[str, Any]:
    """What a run showed. P0's waits are those of shards that never fell."""
    lucky = frozenset(range(1, run.setup.shards)) if run.setup.falls_at is not None else None
    inversions = run.inversions()
    return {
        "arrived": run.arrived,
        "started": len(run.starts),
        "rerouted": run.rerouted,
        "claims": run.claims,
        "looks": run.looks,
        "p0_p99_ms": round(quantile(run.waits(0, lucky), 0.99) * 1_000, 1),
        "waits_ms": {
            f"P{band}": [round(quantile(run.waits(band), share) * 1_000, 1) for share in (0.5, 0.99, 1)]
            for band in range(len(run.setup.mix))
        },
        "inversion_ms": {
            "starts": len(inversions),
            "p99": round(quantile(inversions, 0.99) * 1_000, 1),
            "max": round(quantile(inversions, 1.0) * 1_000, 1),
        },
        "skew": round(run.skew(), 3),
    }


def lines(found: dict[str, Any]) -> str:
    """The same for people."""
    waits = "\n".join(
        f"  {band}: median {middle:,.1f} ms, 99th {high:,.1f} ms, longest {most:,.1f} ms"
        for band, (middle, high, most) in found["waits_ms"].items()
    )
    inverted = found["inversion_ms"]
    return (
        f"{found['started']:,} of {found['arrived']:,} messages started ({found['rerouted']:,} re-routed) by "
        f"{found['claims']:,} claims and {found['looks']:,} looks\n{waits}\n"
        f"inversions: {inverted['starts']:,} starts, 99th {inverted['p99']} ms, longest {inverted['max']} ms\n"
        f"busiest shard: {found['skew']} of the mean"
    )


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _part(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not -0.9 <= number <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from -0.9 to 10")
    return number
