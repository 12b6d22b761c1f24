"""`manage.py simulate`: the scheduler's policy on a virtual clock."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from jobqueue.policies import PRESETS
from jobqueue.policy.simulated import Run
from jobqueue.policy.simulation import simulate
from jobqueue.policy.types import SERVICE_TIME, UNIT
from jobqueue.simulating import files
from jobqueue.simulating.expectations import Finding
from jobqueue.simulating.measures import Figures, of_bands, of_tenants
from jobqueue.simulating.picture import svg
from jobqueue.simulating.tables import SetupError
from jobsplatform.commands import StrictCommand

TENANTS_SHOWN: Final = 20
WIDTH: Final = 132  # of tables that go to a file or a pipe

SETTINGS: Final = ("seconds", "seed", "workers", "batch", "claim_every_s", "passed_over")
POLICY_SETTINGS: Final = ("preset", "reserved_share", "ageing_s", "cost_model")


class Command(StrictCommand):
    """Exit 1: an expectation of the scenario is missed."""

    help = (
        "Run the scheduling policy on a virtual clock: shares, ages, starvation. Needs no database. A setup is a TOML "
        "file, a scenario that comes along (--list), or --source alone; flags override what the setup says."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("file", nargs="?", type=Path, help="a setup (docs/scheduling.md has the keys)")
        which.add_argument("--scenario", metavar="NAME", help="a scenario that comes along")
        which.add_argument("--list", action="store_true", help="name the scenarios that come along")
        parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
        parser.add_argument("--svg", type=Path, metavar="FILE", help="write a picture")
        self._add_overrides(parser)

    def _add_overrides(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--source",
            action="append",
            default=[],
            metavar="KEY=VALUE,…",
            help="a source of work, as in: tenant=acme,band=P0,rate_per_s=80,service_s=0.1,service=exp; may repeat",
        )
        parser.add_argument("--preset", choices=sorted(PRESETS), help="the queue's bands (default five)")
        parser.add_argument("--reserved-share", type=float, help="of bulk bands under strict ones, 0 to 0.5")
        parser.add_argument("--ageing-s", "--ageing", type=float, help="a band more urgent for each period")
        parser.add_argument("--cost-model", choices=[UNIT, SERVICE_TIME])
        parser.add_argument("--workers", type=int, help="slots (default 10)")
        parser.add_argument("--batch", type=int, help="jobs that one claim takes at most (default 100)")
        parser.add_argument("--claim-every-s", type=float, help="what a claim takes (default 0)")
        parser.add_argument(
            "--passed-over", type=float, help="share of planned jobs that others hold (default 0)"
        )
        parser.add_argument("--seconds", type=float, help="virtual seconds (default 60)")
        parser.add_argument("--seed", type=int, help="of random arrivals and service times (default 1)")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            self._list()
            return
        try:
            scenario = self._scenario(options)
            run = simulate(scenario.setup)
        except SetupError as error:
            raise CommandError(str(error)) from error
        findings = [expectation(run) for expectation in scenario.expectations]
        if options["svg"] is not None:
            self._draw(options["svg"], scenario, run)
        if options["json"]:
            self.stdout.write(json.dumps(_document(scenario, run, findings)))
        else:
            self._show(scenario, run, findings)
        if not all(finding.holds for finding in findings):
            sys.exit(1)

    def _list(self) -> None:
        for name in files.shipped_names():
            self.stdout.write(f"{name:26} {files.scenario(name, files.shipped(name)).summary}")

    def _scenario(self, options: Mapping[str, Any]) -> files.Scenario:
        name, document = "flags", {}
        if options["scenario"] is not None:
            name, document = options["scenario"], files.shipped(options["scenario"])
        elif options["file"] is not None:
            name, document = options["file"].stem, files.parsed(_read(options["file"]))
        document |= {key: options[key] for key in SETTINGS if options[key] is not None}
        policy = document.setdefault("policy", {})
        if isinstance(policy, dict):
            policy |= {key: options[key] for key in POLICY_SETTINGS if options[key] is not None}
        if options["source"]:
            document["sources"] = [*document.get("sources", []), *map(_source, options["source"])]
        return files.scenario(name, document)

    def _draw(self, path: Path, scenario: files.Scenario, run: Run) -> None:
        try:
            path.write_text(svg(scenario, run), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"The picture could not be written: {error}.") from error

    def _show(self, scenario: files.Scenario, run: Run, findings: Sequence[Finding]) -> None:
        text = StringIO()
        terminal = Console(
            file=text, force_terminal=self.stdout.isatty(), width=None if self.stdout.isatty() else WIDTH
        )
        setup = run.setup
        slots = sum(pool.slots for pool in setup.pools)
        terminal.print(scenario.summary, style="bold", highlight=False)
        terminal.print(
            f"seed {setup.seed} · {setup.seconds:g} s · {slots:,} slots · {setup.policy.cost_model} · "
            f"{len(run.starts):,} starts, {len(run.starts) / setup.seconds:,.1f}/s · {len(run.left):,} still wait",
            highlight=False,
        )
        bands, tenants = of_bands(run), of_tenants(run)
        terminal.print(_table("Bands", bands))
        if len(tenants) > len(bands):
            terminal.print(_table("Tenants in their bands", tenants[:TENANTS_SHOWN]))
        if len(tenants) > TENANTS_SHOWN:
            terminal.print(f"… and {len(tenants) - TENANTS_SHOWN:,} more (--json has all)", highlight=False)
        for finding in findings:
            mark = "[green]held  [/]" if finding.holds else "[red]MISSED[/]"
            terminal.print(f"{mark} {finding.text}: {finding.seen}", highlight=False)
        self.stdout.write(text.getvalue())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"The setup could not be read: {error}.") from error


def _source(text: str) -> dict[str, object]:
    """A source given as a flag: `key=value` with commas; numbers are numbers."""
    source: dict[str, object] = {}
    for pair in text.split(","):
        key, is_pair, value = pair.partition("=")
        if not is_pair:
            raise SetupError(f"--source: {pair!r} is not key=value.")
        source[key.strip()] = _value(value.strip())
    return source


def _value(text: str) -> object:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _table(title: str, figures: Sequence[Figures]) -> Table:
    table = Table(title=title, title_justify="left")
    has_tenants = any(one.tenant is not None for one in figures)
    table.add_column("band")
    if has_tenants:
        table.add_column("tenant", no_wrap=True)
    columns = (
        "target",
        "actual",
        "starts",
        "slot-s",
        "p50 s",
        "p99 s",
        "max s",
        "waiting",
        "oldest s",
        "gap s",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for one in figures:
        names = (one.band, one.tenant or "") if has_tenants else (one.band,)
        table.add_row(*names, *_cells(one))
    return table


def _cells(one: Figures) -> tuple[str, ...]:
    return (
        f"{one.target:.1%}",
        f"{one.share:.1%}",
        f"{one.starts:,}",
        f"{one.slot_s:,.1f}",
        _seconds(one.age_p50_s),
        _seconds(one.age_p99_s),
        _seconds(one.age_max_s),
        f"{one.waiting:,}",
        _seconds(one.oldest_waiting_s),
        _seconds(one.longest_gap_s),
    )


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _document(scenario: files.Scenario, run: Run, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "scenario": scenario.name,
        "summary": scenario.summary,
        "seed": run.setup.seed,
        "seconds": run.setup.seconds,
        "slots": sum(pool.slots for pool in run.setup.pools),
        "starts": len(run.starts),
        "waiting": len(run.left),
        "bands": [_rounded(one) for one in of_bands(run)],
        "tenants": [_rounded(one) for one in of_tenants(run)],
        "expectations": [asdict(finding) for finding in findings],
        "holds": all(finding.holds for finding in findings),
    }


def _rounded(one: Figures) -> dict[str, object]:
    values = {
        key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(one).items()
    }
    return {key: value for key, value in values.items() if key != "tenant" or value is not None}
