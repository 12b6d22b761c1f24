"""Tenants and their limits: made, changed, paused, suspended, and told to the shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.db.models import Count, F, Sum
from django.db.models.functions import Coalesce

from jobsplatform import database, sql
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, NotFound, Unavailable
from tenants import audit
from tenants.models import Quota, QuotaVersion, Tenant, TenantLimit, TenantState

LIMITS: Final = (
    "max_running",
    "max_depth",
    "enqueue_rate_per_s",
    "enqueue_burst",
    "max_payload_bytes",
    "max_schedules",
    "weight",
)
INTAKE: Final = ("max_depth", "enqueue_rate_per_s", "max_payload_bytes")  # any of them is asked at enqueue
REPAIRED_MAX: Final = 200  # tenants that one pass tells anew
HISTORY_MAX: Final = 50  # versions that one look shows
_PUSHED: Final = ("max_running", "weight", "enqueue_burst", *INTAKE)


def create_tenant(slug: str, *, name: str = "", actor: str) -> Tenant:
    """A new tenant without limits. Raises Invalid for a bad or taken slug."""
    tenant = Tenant(slug=slug, name=name)
    _clean(tenant)
    with transaction.atomic():
        tenant.save(force_insert=True)
        audit.record("tenant.create", f"tenant:{slug}", actor=actor, tenant_id=tenant.pk)
    _require_reached(push(tenant))
    return tenant


def get(slug: str) -> Tenant:
    """Raises NotFound."""
    try:
        return Tenant.objects.get(slug=slug)
    except Tenant.DoesNotExist:
        raise NotFound(f"There is no tenant {slug!r}.") from None


def pause(slug: str, *, actor: str, reason: str = "") -> None:
    """Start no job of this tenant until `resume`; its enqueues go on."""
    _set(slug, "is_paused", True, "pause", actor, reason)


def resume(slug: str, *, actor: str, reason: str = "") -> None:
    """Undo `pause`."""
    _set(slug, "is_paused", False, "resume", actor, reason)


def suspend(slug: str, *, actor: str, reason: str = "") -> None:
    """Refuse the tenant's producing and working calls."""
    _set(slug, "is_suspended", True, "suspend", actor, reason)


def reinstate(slug: str, *, actor: str, reason: str = "") -> None:
    """Undo `suspend`."""
    _set(slug, "is_suspended", False, "reinstate", actor, reason)


def _set(slug: str, field: str, value: bool, verb: str, actor: str, reason: str) -> None:
    with transaction.atomic():
        tenant = _locked(slug)
        setattr(tenant, field, value)
        _bump(tenant)
        audit.record(f"tenant.{verb}", f"tenant:{slug}", actor=actor, tenant_id=tenant.pk, reason=reason)
    _require_reached(push(tenant))


def set_quota(
    slug: str,
    limits: Mapping[str, Any],
    *,
    queue: str = "",
    band: int | None = None,
    actor: str,
    reason: str = "",
) -> Quota:
    """Set limits of a tenant (in one queue, in one band); null lifts one. Raises NotFound, Invalid."""
    unknown = [name for name in limits if name not in LIMITS]
    if unknown:
        raise Invalid.at(f"/{unknown[0]}", f"{unknown[0]} is not a limit; there are {', '.join(LIMITS)}.")
    with transaction.atomic():
        tenant = _locked(slug)
        quota = _store_quota(tenant, limits, queue, band, actor=actor, reason=reason)
    _require_reached(push(tenant))
    return quota


def quota_history(slug: str, limit: int = HISTORY_MAX) -> list[QuotaVersion]:
    """The newest versions of a tenant's quotas, newest first. Raises NotFound."""
    versions = QuotaVersion.objects.filter(tenant=get(slug)).select_related("tenant")
    return list(versions.order_by("-number")[:limit])


def revert_quota(slug: str, number: int, *, actor: str, reason: str = "") -> Quota:
    """Make the limits of a version hold again, in the version's scope; that is a new version. Raises NotFound."""
    with transaction.atomic():
        tenant = _locked(slug)
        version = QuotaVersion.objects.filter(tenant=tenant, number=number).first()
        if version is None:
            raise NotFound(f"The quotas of {slug} have no version {number}.")
        quota = _store_quota(
            tenant,
            version.limits,
            version.queue,
            version.band,
            actor=actor,
            reason=reason,
            reverts_to=number,
        )
    _require_reached(push(tenant))
    return quota


def _store_quota(
    tenant: Tenant,
    limits: Mapping[str, Any],
    queue: str,
    band: int | None,
    *,
    actor: str,
    reason: str,
    reverts_to: int | None = None,
) -> Quota:
    """Store the limits of a scope, their version and the audit, in the caller's transaction. Raises Invalid."""
    quota = Quota.objects.filter(tenant=tenant, queue=queue, band=band).first()
    quota = quota or Quota(tenant=tenant, queue=queue, band=band)
    before = limits_of(quota)
    for name, value in limits.items():
        setattr(quota, name, value)
    _clean(quota)
    quota.save()
    _bump(tenant)
    details = {
        "scope": str(quota),
        "before": {name: before[name] for name in limits},
        "after": dict(limits),
        "version": _new_version(quota, before, actor, reason, reverts_to),
    }
    verb = "quota.set" if reverts_to is None else "quota.revert"
    if reverts_to is not None:
        details["reverts_to"] = reverts_to
    audit.record(
        verb, f"tenant:{tenant.slug}", actor=actor, tenant_id=tenant.pk, reason=reason, details=details
    )
    return quota


def limits_of(quota: Quota) -> dict[str, Any]:
    """All limits of a quota by name; None: no limit."""
    return {name: getattr(quota, name) for name in LIMITS}


def _new_version(
    quota: Quota, before: Mapping[str, Any], actor: str, reason: str, reverts_to: int | None
) -> int | None:
    """Keep the limits as they are now; the first time, as they were too, so that the first change can be undone.

    Returns the version's number; None: nothing has changed.
    """
    now = limits_of(quota)
    if now == before and reverts_to is None:
        return None
    kept = QuotaVersion.objects.filter(tenant=quota.tenant)
    newest = kept.order_by("-number").first()
    number = newest.number if newest else 0
    place = {"tenant": quota.tenant, "queue": quota.queue, "band": quota.band}
    if not kept.filter(queue=quota.queue, band=quota.band).exists():
        number += 1
        QuotaVersion.objects.create(
            **place, number=number, limits=dict(before), actor=actor, reason="As it was before."
        )
    number += 1
    QuotaVersion.objects.create(
        **place, number=number, limits=now, actor=actor, reason=reason, reverts_to=reverts_to
    )
    return number


def _locked(slug: str) -> Tenant:
    try:
        return Tenant.objects.select_for_update().get(slug=slug)
    except Tenant.DoesNotExist:
        raise NotFound(f"There is no tenant {slug!r}.") from None


def _bump(tenant: Tenant) -> None:
    tenant.version = F("version") + 1
    tenant.save()
    tenant.refresh_from_db()


def _clean(instance: Tenant | Quota) -> None:
    try:
        instance.full_clean()
    except ValidationError as error:
        raise Invalid(
            errors=[
                FieldError(f"/{key}", "invalid", f"{key}: {texts[0]}")
                for key, texts in error.message_dict.items()
            ]
        ) from error


_after_push: Callable[[int], None] = lambda tenant_id: None  # noqa: E731


def after_pushes(after_push: Callable[[int], None]) -> None:
    """How the queue hears that a tenant's limits over several shards have changed."""
    global _after_push
    _after_push = after_push


def push(tenant: Tenant) -> list[int]:
    """Tell every shard what its statements must know of the tenant, never an older version over a newer.

    Returns the numbers of shards that could not be reached.
    """
    limits = _limits(tenant)
    state = {
        "version": tenant.version,
        "slug": tenant.slug,
        "weight": tenant.weight,
        "is_paused": tenant.is_paused,
        "limits_running": any(limit.max_running is not None for limit in limits),
        "limits_intake": any(getattr(limit, name) is not None for limit in limits for name in INTAKE),
    }
    unreached = []
    for number, alias in database.aliases().items():
        try:
            _tell(alias, tenant, state, limits)
        except (DatabaseError, JobsPlatformError):
            unreached.append(number)
    if any(limit.is_shared for limit in limits):
        _after_push(tenant.pk)
    return unreached


def repair() -> int:
    """Tell shards of tenants that they know less of than control: they were away, or it was before they took slugs.

    Returns how many tenants were told anew. Shards that are away are left.
    """
    known = Tenant.objects.aggregate(count=Count("pk"), sum=Coalesce(Sum("version"), 0))
    wanted = [(known["count"], known["sum"])]
    behind: set[int] = set()
    versions: dict[int, int] | None = None
    for alias in database.aliases().values():
        try:
            if sql.rows("tenants/tenant_sums", {}, alias=alias) == wanted:
                continue
            versions = versions or dict(Tenant.objects.values_list("pk", "version"))
            told: dict[int, int] = dict(sql.rows("tenants/tenant_versions", {}, alias=alias))
        except JobsPlatformError:
            continue
        behind.update(pk for pk, version in versions.items() if told.get(pk, -1) < version)
    for tenant in Tenant.objects.filter(pk__in=sorted(behind)[:REPAIRED_MAX]):
        push(tenant)
    return min(len(behind), REPAIRED_MAX)


def _limits(tenant: Tenant) -> list[TenantLimit]:
    """What the shards' statements must know of the tenant's quotas."""
    quotas = Quota.objects.filter(tenant=tenant).exclude(**dict.fromkeys(_PUSHED))
    return [
        TenantLimit(
            tenant_id=tenant.pk,
            queue=quota.queue,
            band=quota.band,
            is_shared=len(database.aliases()) > 1,
            **{name: getattr(quota, name) for name in _PUSHED},
        )
        for quota in quotas
    ]


def _tell(alias: str, tenant: Tenant, state: Mapping[str, Any], limits: list[TenantLimit]) -> None:
    with transaction.atomic(using=alias):
        states = TenantState.objects.using(alias)
        if not states.filter(tenant_id=tenant.pk, version__lte=tenant.version).update(**state):
            made = states.bulk_create([TenantState(tenant_id=tenant.pk, **state)], ignore_conflicts=True)
            if not made or states.filter(tenant_id=tenant.pk).exclude(version=tenant.version).exists():
                return
        TenantLimit.objects.using(alias).filter(tenant_id=tenant.pk).delete()
        TenantLimit.objects.using(alias).bulk_create([copy(limit) for limit in limits])


def _require_reached(unreached: list[int]) -> None:
    if unreached:
        shards = ", ".join(map(str, unreached))
        raise Unavailable(f"The change is stored, but these shards were not reached: {shards}. Repeat it.")
