"""What a policy would do next, shown before it is in force: the policy's own code on bands that all have work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from jobqueue.policy.plan import plan
from jobqueue.policy.types import Head, Policy, State

_ANY = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Preview:
    """Names of bands in the order of their opportunities, and how many each has of the first hundred."""

    order: Sequence[str]
    of_hundred: Mapping[str, int]


def preview(policy: Policy, count: int = 12) -> Preview:
    """The first `count` weighted opportunities of a cycle while every weighted band has work and no strict one has."""
    heads = [
        Head(band, band, 1, "", (), job, _ANY, True)
        for band in range(len(policy.bands))
        if band not in policy.strict_bands
        for job in range(100)
    ]
    bands = [policy.bands[take.band].name for take in plan(policy, State(), heads, max(count, 100)).takes]
    shares = Counter(bands[:100])
    weighted = [band.name for band in policy.bands if not band.strict]
    return Preview(bands[:count], {name: shares[name] for name in weighted})
