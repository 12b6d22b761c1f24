"""Remembers what a creation under an Idempotency-Key was answered, for a day."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.db.models.functions import Now

from jobqueue.schedule_models import ScheduleAnswer
from jobqueue.schedules.reads import ScheduleView
from jobsplatform.errors import KeyConflict
from jobsplatform.instants import format_optional, parse_instant

KEPT: Final = timedelta(hours=24)
INSTANTS: Final = ("created_at", "next_at")


def first_answer(tenant_id: int, key: str, fingerprint: bytes) -> ScheduleView | None:
    """What the key's first use within a day was answered. Raises KeyConflict when that was for something else."""
    _old().filter(tenant_id=tenant_id, key=key).delete()
    found = ScheduleAnswer.objects.filter(tenant_id=tenant_id, key=key).first()
    if found is None:
        return None
    if bytes(found.fingerprint) != fingerprint:
        raise KeyConflict
    answer: dict[str, Any] = found.answer
    for name in INSTANTS:
        answer[name] = None if answer[name] is None else parse_instant(answer[name])
    return ScheduleView(**answer)


def keep(tenant_id: int, key: str, fingerprint: bytes, made: ScheduleView) -> None:
    """In the transaction that makes the schedule."""
    answer = asdict(made) | {name: format_optional(getattr(made, name)) for name in INSTANTS}
    ScheduleAnswer.objects.create(tenant_id=tenant_id, key=key, fingerprint=fingerprint, answer=answer)


def purge(limit: int) -> int:
    """Forget answers that are older than a day. Returns how many."""
    old = _old().order_by("answered_at").values_list("pk", flat=True)[:limit]
    count, _ = ScheduleAnswer.objects.filter(pk__in=list(old)).delete()
    return count


def _old() -> QuerySet[ScheduleAnswer]:
    return ScheduleAnswer.objects.filter(answered_at__lte=Now() - KEPT)
