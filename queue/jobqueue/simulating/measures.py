"""The figures of a run: shares against their targets, slot-seconds, ages, gaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jobqueue.policy.simulated import Run, Start
from jobqueue.simulating.targets import Targets, slot_seconds

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of a band, or of a tenant in a band. Shares are of all bands, or of the band; a tenant's go by what is charged.

    `target`: what the weights give, with borrowing, for the work that there was. Ages are waits of started jobs;
    `oldest_waiting_s` is of those that still wait; `longest_gap_s` is the longest time between starts while eligible.
    """

    band: str
    tenant: str | None
    target: float
    share: float
    starts: int
    slot_s: float
    waiting: int
    age_p50_s: float | None
    age_p99_s: float | None
    age_max_s: float | None
    oldest_waiting_s: float | None
    longest_gap_s: float


def of_bands(run: Run) -> list[Figures]:
    """The figures of each band that had work."""
    starts, left = _grouped(run.starts, by_tenant=False), _left(run, by_tenant=False)
    targets, total = Targets(run).of_bands(), len(run.starts)
    return [
        _figures(
            run,
            run.setup.policy.bands[band].name,
            None,
            targets[band],
            _share(len(starts[band]), total),
            starts[band],
            left[band],
            run.gap_of_band[band],
        )
        for band in sorted({band for band, _ in run.offered})
    ]


def of_tenants(run: Run) -> list[Figures]:
    """The figures of each tenant in each band in which it had work."""
    starts, left = _grouped(run.starts, by_tenant=True), _left(run, by_tenant=True)
    targets, used = Targets(run).of_tenants(), _used(run, starts)
    of_band: dict[int, float] = defaultdict(float)
    for (band, _), amount in used.items():
        of_band[band] += amount
    return [
        _figures(
            run,
            run.setup.policy.bands[band].name,
            tenant,
            targets[band, tenant],
            _share(used[band, tenant], of_band[band]),
            starts[band, tenant],
            left[band, tenant],
            run.gap_of[band, tenant],
        )
        for band, tenant in sorted(run.offered)
    ]


def _used(run: Run, starts: Mapping[object, list[Start]]) -> dict[tuple[int, str], float]:
    """What is shared out among a band's tenants: slot-seconds where these are charged, else starts."""
    is_costed = run.setup.policy.is_costed
    return {
        key: slot_seconds(run, starts[key]) if is_costed else float(len(starts[key])) for key in run.offered
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so great a share does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _figures(
    run: Run,
    band: str,
    tenant: str | None,
    target: float,
    share: float,
    starts: Sequence[Start],
    left: Sequence[float],
    gap_s: float,
) -> Figures:
    waits = sorted(start.waited_s for start in starts)
    return Figures(
        band=band,
        tenant=tenant,
        target=target,
        share=share,
        starts=len(starts),
        slot_s=slot_seconds(run, starts),
        waiting=len(left),
        age_p50_s=percentile(waits, 0.5) if waits else None,
        age_p99_s=percentile(waits, 0.99) if waits else None,
        age_max_s=waits[-1] if waits else None,
        oldest_waiting_s=max(left, default=None),
        longest_gap_s=gap_s,
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _grouped(starts: Sequence[Start], *, by_tenant: bool) -> Mapping[object, list[Start]]:
    found: dict[object, list[Start]] = defaultdict(list)
    for start in starts:
        found[(start.band, start.tenant) if by_tenant else start.band].append(start)
    return found


def _left(run: Run, *, by_tenant: bool) -> Mapping[object, list[float]]:
    found: dict[object, list[float]] = defaultdict(list)
    for job in run.left:
        found[(job.band, job.tenant) if by_tenant else job.band].append(job.waited_s)
    return found
