"""What a scenario is expected to show, as tables of its file: each looks at a run and says whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobqueue.policy.simulated import Run, Start
from jobqueue.simulating.measures import percentile
from jobqueue.simulating.tables import SetupError, Table
from jobqueue.simulating.targets import slot_seconds

STEP_SECONDS: Final = 1.0  # by which a window moves on


@dataclass(frozen=True, slots=True)
class Finding:
    """An expectation in words, what was seen, and whether it holds."""

    text: str
    seen: str
    holds: bool


Expectation = Callable[[Run], Finding]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a figure must be: about a value, at least, at most."""

    least: float | None
    most: float | None

    def hold(self, value: float) -> bool:
        above = self.least is None or value >= self.least - 1e-9
        return above and (self.most is None or value <= self.most + 1e-9)

    def worst(self, values: Iterable[float]) -> float:
        """The value that is nearest to, or farthest beyond, a bound."""
        return max(values, key=self._excess)

    def _excess(self, value: float) -> float:
        below = -1e18 if self.least is None else self.least - value
        return max(below, -1e18 if self.most is None else value - self.most)

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:.4g} to {self.most:.4g}"
        return f"at least {self.least:.4g}" if self.most is None else f"at most {self.most:.4g}"


def read_expectation(table: Table, bands: Sequence[str], tenants: Collection[str]) -> Expectation:
    """The expectation that a table describes. Raises SetupError."""
    kind = table.text("kind", among=_KINDS)
    expectation = _KINDS[kind](table, bands, tenants)
    table.close()
    return expectation


def _bounds(table: Table) -> Bounds:
    if "equals" in table:
        value, within = table.number("equals"), table.number("within", 0.0)
        return Bounds(value - within, value + within)
    bounds = Bounds(table.optional_number("at_least"), table.optional_number("at_most"))
    if bounds.least is None and bounds.most is None:
        raise SetupError(f"{table.where} needs equals (and within), at_least or at_most.")
    return bounds


def _span(table: Table) -> tuple[float, float | None]:
    return table.number("from_s", 0.0), table.optional_number("until_s")


class _Whose:
    """Which starts an expectation is about: some bands', some tenants', or both; of all pools or of some."""

    def __init__(self, table: Table, bands: Sequence[str], tenants: Collection[str]) -> None:
        names, self.tenants = table.texts("bands"), table.texts("tenants")
        for wrong in [*(set(names) - set(bands)), *(set(self.tenants) - set(tenants))]:
            raise SetupError(f"{table.where}: there is no {wrong}.")
        self.bands, self.pools = {bands.index(name) for name in names}, table.texts("pools")
        self.text = " + ".join([*names, *self.tenants]) or "all"
        self.text += f" in pool {' + '.join(self.pools)}" if self.pools else ""

    def __contains__(self, start: Start) -> bool:
        is_theirs = not self.tenants or start.tenant in self.tenants
        return is_theirs and (not self.bands or start.band in self.bands) and self.is_asked(start)

    def is_asked(self, start: Start) -> bool:
        """Whether a pool that this is about took it."""
        return not self.pools or start.pool in self.pools


# The kinds


def _order(table: Table, bands: Sequence[str], _: Collection[str]) -> Expectation:
    """The first starts are of these bands, in this order."""
    wanted = table.text("bands").split()
    if wrong := set(wanted) - set(bands):
        raise SetupError(f"{table.where}: there is no {', '.join(sorted(wrong))}.")

    def look(run: Run) -> Finding:
        seen = [bands[start.band] for start in run.starts[: len(wanted)]]
        return Finding(f"the first are {' '.join(wanted)}", " ".join(seen), seen == wanted)

    return look


def _first(table: Table, _: Sequence[str], tenants: Collection[str]) -> Expectation:
    """Of the first starts each tenant has so many."""
    counts = table.table("of_tenants")
    wanted = {tenant: counts.whole(tenant) for tenant in sorted(tenants) if tenant in counts}
    counts.close()
    total = sum(wanted.values())

    def look(run: Run) -> Finding:
        seen = Counter(start.tenant for start in run.starts[:total])
        text = f"the first {total} are {_listed(wanted)}"
        return Finding(text, _listed(seen), dict(seen) == {name: n for name, n in wanted.items() if n})

    return look


def _rounds(table: Table, _: Sequence[str], tenants: Collection[str]) -> Expectation:
    """Each tenant is served once before any is served again, for so many rounds."""
    rounds = table.whole("rounds", least=1)

    def look(run: Run) -> Finding:
        held = 0
        while held < rounds and len(_round(run, held, len(tenants))) == len(tenants):
            held += 1
        text = f"{rounds} rounds in which each of {len(tenants):,} tenants is served once"
        return Finding(text, f"{held} rounds", held == rounds)

    return look


def _round(run: Run, number: int, size: int) -> set[str]:
    return {start.tenant for start in run.starts[number * size : (number + 1) * size]}


def _share(table: Table, bands: Sequence[str], tenants: Collection[str]) -> Expectation:
    """The share of starts or slot-seconds, in all of a time or in every window of it."""
    of = table.text("of", "starts", among=("starts", "slot_seconds"))
    whose, bounds, window_s = _Whose(table, bands, tenants), _bounds(table), table.optional_number("window_s")
    from_s, until_s = _span(table)

    def look(run: Run) -> Finding:
        end_s = run.setup.seconds if until_s is None else until_s
        values = [_part(run, whose, of, *span) for span in _windows(from_s, end_s, window_s)]
        worst = bounds.worst(values)
        where = f" in every {window_s:g} s" if window_s else f" from {from_s:g} to {end_s:g} s"
        return Finding(
            f"share of {whose.text} of {of.replace('_', '-')}{where} is {bounds}",
            f"{worst:.4f}",
            bounds.hold(worst),
        )

    return look


def _windows(from_s: float, until_s: float, window_s: float | None) -> Iterator[tuple[float, float]]:
    if window_s is None or until_s - from_s <= window_s:
        yield from_s, until_s
        return
    while from_s + window_s <= until_s + 1e-9:
        yield from_s, from_s + window_s
        from_s += STEP_SECONDS


def _part(run: Run, whose: _Whose, of: str, from_s: float, until_s: float) -> float:
    asked = [one for one in run.starts if whose.is_asked(one)]
    theirs = [one for one in asked if one in whose]
    if of == "slot_seconds":
        whole = slot_seconds(run, asked, from_s, until_s)
        part = slot_seconds(run, theirs, from_s, until_s)
    else:
        whole = sum(from_s <= one.at_s < until_s for one in asked)
        part = sum(from_s <= one.at_s < until_s for one in theirs)
    return part / whole if whole else 0.0


def _rate(table: Table, bands: Sequence[str], tenants: Collection[str]) -> Expectation:
    """Starts a second."""
    whose, bounds = _Whose(table, bands, tenants), _bounds(table)
    from_s, until_s = _span(table)

    def look(run: Run) -> Finding:
        end_s = run.setup.seconds if until_s is None else until_s
        rate = sum(from_s <= one.at_s < end_s and one in whose for one in run.starts) / (end_s - from_s)
        text = f"starts/s of {whose.text} from {from_s:g} to {end_s:g} s are {bounds}"
        return Finding(text, f"{rate:,.1f}", bounds.hold(rate))

    return look


def _emptied(table: Table, bands: Sequence[str], _: Collection[str]) -> Expectation:
    """When a band has no waiting job for the first time, in seconds from the beginning."""
    band, bounds = table.text("band", among=bands), _bounds(table)

    def look(run: Run) -> Finding:
        at_s = run.emptied_s.get(bands.index(band))
        seen = "never" if at_s is None else f"{at_s:.2f} s"
        return Finding(
            f"{band} has nothing waiting after {bounds} s", seen, at_s is not None and bounds.hold(at_s)
        )

    return look


def _running(table: Table, _: Sequence[str], tenants: Collection[str]) -> Expectation:
    """How many jobs of a tenant ran at once at most."""
    tenant, bounds = table.text("tenant", among=tenants), _bounds(table)

    def look(run: Run) -> Finding:
        most = run.most_running.get(tenant, 0)
        return Finding(f"most running at once of {tenant} is {bounds}", str(most), bounds.hold(most))

    return look


def _gap(table: Table, bands: Sequence[str], tenants: Collection[str]) -> Expectation:
    """The longest time between starts of a band, or of each tenant in it, while eligible, in seconds."""
    band, bounds = table.text("band", among=bands), _bounds(table)
    by_tenant = table.flag("by_tenant")

    def look(run: Run) -> Finding:
        index = bands.index(band)
        of_tenants = [gap for (other, _), gap in run.gap_of.items() if other == index]
        gap_s = max(of_tenants, default=0.0) if by_tenant else run.gap_of_band[index]
        whose = f"a tenant in {band}" if by_tenant else band
        return Finding(f"longest gap of {whose} is {bounds} s", f"{gap_s:.3f} s", bounds.hold(gap_s))

    return look


def _age(table: Table, bands: Sequence[str], tenants: Collection[str]) -> Expectation:
    """A percentile of the waits of started jobs, in seconds."""
    whose, bounds = _Whose(table, bands, tenants), _bounds(table)
    share = table.number("percentile", 99.0)

    def look(run: Run) -> Finding:
        waits = sorted(one.waited_s for one in run.starts if one in whose)
        age_s = percentile(waits, share / 100) if waits else None
        text = f"p{share:g} of the waits of {whose.text} is {bounds} s"
        seen = "none started" if age_s is None else f"{age_s:.3f} s"
        return Finding(text, seen, age_s is not None and bounds.hold(age_s))

    return look


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts))


_KINDS: Final[Mapping[str, Callable[[Table, Sequence[str], Collection[str]], Expectation]]] = {
    "order": _order,
    "first": _first,
    "rounds": _rounds,
    "share": _share,
    "rate": _rate,
    "emptied": _emptied,
    "running": _running,
    "gap": _gap,
    "age": _age,
}
