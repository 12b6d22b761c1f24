"""Setups of the simulation as TOML documents. `docs/scheduling.md` has the keys."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

from jobqueue.policies import PRESETS
from jobqueue.policy.simulated import Pool, Setup, Source, TenantRules
from jobqueue.policy.types import SERVICE_TIME, UNIT, BandPolicy, Policy
from jobqueue.simulating.expectations import Expectation, read_expectation
from jobqueue.simulating.tables import SetupError, Table

JOBS_MAX: Final = 2_000_000  # that a setup may bring, so that a slip does not eat the machine
_FOLDER = resources.files("jobqueue.simulating") / "scenarios"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A setup, and what it is expected to show."""

    name: str
    summary: str
    setup: Setup
    expectations: Sequence[Expectation]


def shipped_names() -> list[str]:
    """The scenarios that come along, by name."""
    return sorted(
        entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir() if entry.name.endswith(".toml")
    )


def shipped(name: str) -> dict[str, Any]:
    """The document of a scenario that comes along. Raises SetupError."""
    if name not in shipped_names():
        raise SetupError(f"There is no scenario {name}; --list has them.")
    return parsed((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def parsed(text: str) -> dict[str, Any]:
    """Raises SetupError for what is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"Not TOML: {error}.") from error


def scenario(name: str, document: Mapping[str, Any]) -> Scenario:
    """What a document describes. Raises SetupError that names the key at fault."""
    table = Table(document, "The setup")
    summary = table.text("summary", name)
    setup = _setup(table)
    bands = [band.name for band in setup.policy.bands]
    tenants = {source.tenant for source in setup.sources}
    expectations = [read_expectation(one, bands, tenants) for one in table.tables("expect")]
    table.close()
    return Scenario(name, summary, setup, expectations)


def _setup(table: Table) -> Setup:
    policy = _policy(table.table("policy"))
    bands = [band.name for band in policy.bands]
    sources = [source for one in table.tables("sources") for source in _sources(one, bands)]
    if not sources:
        raise SetupError("The setup needs sources: without work there is nothing to see.")
    seconds = table.number("seconds", 60.0, least=0.001)
    setup = Setup(
        policy=policy,
        sources=sources,
        pools=_pools(table, bands),
        tenants=dict(_tenant(one) for one in table.tables("tenants")),
        seconds=seconds,
        seed=table.whole("seed", 1),
        passed_over=table.number("passed_over", 0.0),
    )
    if setup.passed_over >= 1:
        raise SetupError("The setup: passed_over is a share below 1.")
    if (jobs := sum(_jobs(source, setup) for source in sources)) > JOBS_MAX:
        raise SetupError(f"The setup brings about {jobs:,.0f} jobs; the most is {JOBS_MAX:,}.")
    return setup


def _jobs(source: Source, setup: Setup) -> float:
    """How many jobs it brings at most."""
    lasting_s = max(0.0, min(setup.seconds, source.until_s) - source.from_s)
    slots = sum(pool.slots for pool in setup.pools) if source.is_endless else 0
    return source.backlog + (source.rate_per_s + slots / source.service_s) * lasting_s


def _policy(table: Table) -> Policy:
    bands = [
        BandPolicy(
            one.text("name"),
            one.whole("weight", 1, least=1),
            strict=one.flag("strict"),
            bulk=one.flag("bulk"),
        )
        for one in table.tables("bands")
    ]
    preset = table.text("preset", "five", among=PRESETS)
    bands = bands or [BandPolicy(one.name, one.weight, one.strict, one.bulk) for one in PRESETS[preset][0]]
    share = table.number("reserved_share", 0.05)
    if share > 0.5:
        raise table.wrong("reserved_share", "0 to 0.5")
    policy = Policy(
        version=1,
        bands=bands,
        reserved_share=share,
        ageing_s=table.number("ageing_s", least=0.001) if "ageing_s" in table else None,
        cost_model=table.text("cost_model", UNIT, among=(UNIT, SERVICE_TIME)),
    )
    table.close()
    return policy


def _pools(table: Table, bands: Sequence[str]) -> list[Pool]:
    whole = {key: table.left.pop(key) for key in ("workers", "batch", "claim_every_s") if key in table}
    pools = [_pool(one, bands) for one in table.tables("pools")]
    if pools and whole:
        raise SetupError(f"The setup has pools; {', '.join(whole)} belong there.")
    return pools or [_pool(Table(whole, "The setup"), bands)]


def _pool(table: Table, bands: Sequence[str]) -> Pool:
    pool = Pool(
        slots=table.whole("workers", 10, least=1),
        name=table.text("name", "workers"),
        max_priority=band_index(table, "max_priority", bands) if "max_priority" in table else None,
        kinds=frozenset(table.texts("kinds")) or None,
        batch=table.whole("batch", 100, least=1),
        claim_every_s=table.number("claim_every_s", 0.0),
    )
    table.close()
    return pool


def _tenant(table: Table) -> tuple[str, TenantRules]:
    name = table.text("name")
    rules = TenantRules(
        weight=table.whole("weight", 1, least=1), max_running=table.optional_whole("max_running")
    )
    table.close()
    return name, rules


def _sources(table: Table, bands: Sequence[str]) -> list[Source]:
    """A source, or as many as `copies` says, each of a tenant of its own."""
    copies, tenant = table.whole("copies", 1, least=1), table.text("tenant", "acme")
    is_endless = table.left.get("backlog") == "endless"
    if is_endless:
        del table.left["backlog"]
    names = [tenant] if copies == 1 else [f"{tenant}-{number:04}" for number in range(1, copies + 1)]
    source = Source(
        tenant=tenant,
        band=band_index(table, "band", bands),
        kind=table.text("kind", "job"),
        service_s=table.number("service_s", 0.1, least=0.000001),
        is_exponential=table.text("service", "fixed", among=("fixed", "exp")) == "exp",
        backlog=table.whole("backlog", 0),
        is_endless=is_endless,
        rate_per_s=table.number("rate_per_s", 0.0),
        is_random=table.text("arrivals", "even", among=("even", "random")) == "random",
        from_s=table.number("from_s", 0.0),
        until_s=table.number("until_s", math.inf),
        weight=table.optional_whole("weight", least=1),
        max_running=table.optional_whole("max_running"),
    )
    table.close()
    if not (source.backlog or source.is_endless or source.rate_per_s):
        raise SetupError(f"{table.where} needs a backlog (a number, or endless) or a rate_per_s.")
    return [_named(source, name) for name in names]


def _named(source: Source, tenant: str) -> Source:
    return source if source.tenant == tenant else replace(source, tenant=tenant)


def band_index(table: Table, key: str, bands: Sequence[str]) -> int:
    """The index of the band of that name. Raises SetupError."""
    return bands.index(table.text(key, among=bands))
