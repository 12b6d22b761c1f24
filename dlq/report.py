"""What a bulk redrive would meet, before it is begun: who stays, whose payload fails again, what is paused or full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import DatabaseError

from dlq import campaigns, patches
from dlq.campaigns import CampaignFilter, Preview
from dlq.patches import Outcome
from jobqueue import kinds, usage
from jobqueue.models import Queue
from jobqueue.types import Scope
from jobsplatform import database, sql
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError
from tenants.models import Quota, Tenant

SAMPLE: Final = 200  # dead letters that are looked at one by one
SAMPLE_BYTES: Final = 32 * 1024  # of a payload; a longer one is not checked
SHOWN: Final = 5  # examples


class Sampled(NamedTuple):
    """A row of `campaign_sample`."""

    job_id: int
    tenant_id: int
    queue_id: int
    kind: str
    reason: str
    redrive_generation: int
    deadline: datetime | None
    payload: str | None
    must_be_corrected: bool


@dataclass(frozen=True, slots=True)
class Failing:
    """A dead letter whose payload its kind's schema refuses as it is now, and why (no values)."""

    job_id: int
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Patched:
    """What a patch makes of one dead letter that was looked at."""

    row: Sampled
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. Findings of the sample alone say so: `sampled` dead letters were looked at one by one."""

    preview: Preview
    sampled: int
    samples: Sequence[Sampled]
    failing: Sequence[Failing]
    fail_count: int
    need_correction: Sequence[int]  # examples that must be corrected first
    warnings: Sequence[str]
    by_kind: Sequence[tuple[str, int]]
    patched: Sequence[Patched] = ()  # what a patch makes of those looked at

    @property
    def would_go(self) -> int:
        """How many would be redriven."""
        return self.preview.matches - sum(self.preview.would_skip.values())

    @property
    def patched_count(self) -> int:
        """How many of those looked at the patch would change, and their kinds take."""
        return sum(one.outcome.verdict is None and one.outcome.payload is not None for one in self.patched)

    @property
    def patched_stay(self) -> Mapping[str, int]:
        """How many of those looked at would stay in spite of the patch, by reason."""
        stay = (one.outcome.verdict for one in self.patched if one.outcome.verdict is not None)
        return dict(Counter(stay))  # a Counter answers a template's `.items` with 0


def report(
    chosen: CampaignFilter,
    *,
    scope: Scope,
    frozen_at: datetime | None = None,
    patch: str | None = None,
    now: datetime | None = None,
) -> Report:
    """Look at what a filter chooses, and what a merge patch makes of it. Raises Invalid for an empty one."""
    found = campaigns.preview(chosen, scope=scope, frozen_at=frozen_at, is_patched=patch is not None, now=now)
    sampled = _sample(chosen, scope, frozen_at or now or campaigns.clock())
    patched = [] if patch is None else [Patched(row, _patched(row, patch)) for row in sampled]
    failing = [one for row in sampled if (one := _fails(row)) is not None] if patch is None else []
    failing += [_refused(one) for one in patched if one.outcome.verdict == patches.SCHEMA]
    must = [row.job_id for row in sampled if row.must_be_corrected]
    return Report(
        found,
        len(sampled),
        sampled[:SHOWN],
        failing[:SHOWN],
        len(failing),
        must[:SHOWN],
        [*_queues(sampled), *_tenants(sampled)],
        Counter(row.kind for row in sampled).most_common(SHOWN),
        patched,
    )


def _patched(row: Sampled, patch: str) -> Outcome:
    return patches.outcome(
        patch,
        kind=row.kind,
        payload=row.payload,
        must_be_corrected=row.must_be_corrected,
        alias=database.alias_of(row.job_id),
    )


def _refused(one: Patched) -> Failing:
    return Failing(one.row.job_id, one.row.kind, _why(one.outcome.faults))


def _why(faults: Sequence[FieldError]) -> str:
    return "; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults[:3])


def _sample(chosen: CampaignFilter, scope: Scope, frozen_at: datetime) -> list[Sampled]:
    params: dict[str, Any] = chosen.columns() | scope.params()
    params |= {"frozen_at": frozen_at, "bytes_max": SAMPLE_BYTES}
    found: list[Sampled] = []
    for alias in database.aliases().values():
        left = SAMPLE - len(found)
        try:
            rows = sql.rows("dlq/campaign_sample", params | {"limit": left}, alias=alias) if left else []
        except (DatabaseError, JobsPlatformError):
            continue  # the preview counts what answered, too
        found += [Sampled(*row) for row in rows]
    return found


def _fails(row: Sampled) -> Failing | None:
    """Whether the payload that a redrive would run with is refused by its kind."""
    if row.payload is None:
        return None
    try:
        kinds.check_payload(row.kind, row.payload, alias=database.alias_of(row.job_id))
    except Invalid as refusal:
        return Failing(row.job_id, row.kind, _why(refusal.errors) or refusal.detail)
    return None


def _queues(sampled: Sequence[Sampled]) -> list[str]:
    paused = Queue.objects.filter(pk__in={row.queue_id for row in sampled}, is_dispatch_paused=True)
    return [
        f"Queue {name} is paused: what goes back waits there."
        for name in paused.order_by("name").values_list("name", flat=True)
    ]


def _tenants(sampled: Sequence[Sampled]) -> list[str]:
    said = []
    tenants = Tenant.objects.filter(pk__in={row.tenant_id for row in sampled}).order_by("slug")
    for tenant in tenants[:SHOWN]:
        if tenant.is_suspended:
            said.append(f"Tenant {tenant.slug} is suspended.")
        if tenant.is_paused:
            said.append(f"Tenant {tenant.slug} is paused: none of its jobs starts.")
        said += _limits(tenant)
    return said


def _limits(tenant: Tenant) -> list[str]:
    """The limits over all queues that a tenant has reached."""
    quota = Quota.objects.filter(tenant=tenant, queue="", band=None).first()
    if quota is None:
        return []
    said = []
    if quota.max_running is not None and usage.running(tenant.pk) >= quota.max_running:
        said.append(
            f"Tenant {tenant.slug} runs {quota.max_running} of {quota.max_running} jobs: what goes back waits."
        )
    if quota.max_depth is not None and usage.waiting(tenant.pk) >= quota.max_depth:
        said.append(
            f"Tenant {tenant.slug} has {quota.max_depth} jobs waiting, its limit: it is over its quota."
        )
    return said
