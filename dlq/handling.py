"""Who looks after an error, and what is known of it: one row a fingerprint, for the operators alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.functions import Now

from dlq import campaigns, groups
from dlq.models import Handling
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.types import FLEET
from jobsplatform.errors import Invalid, NotFound
from tenants import audit

SNOOZE_SECONDS_MIN: Final = 60
SNOOZE_SECONDS_MAX: Final = 90 * 86_400
WAKES_AFTER_MIN: Final = 20  # a few more of a small error are no news
WAKES_AFTER_MAX: Final = 10_000  # they are counted at every look
ISSUE_CHARS_MAX: Final = 200

_FINGERPRINT = re.compile(r"[0-9a-f]{16}").fullmatch


def of(fingerprints: Sequence[str]) -> dict[str, Handling]:
    """Fingerprint → who looks after it, of those that somebody does."""
    return {row.fingerprint: row for row in Handling.objects.filter(fingerprint__in=fingerprints)}


def assign(fingerprint: str, *, assignee: str, note: str, actor: str) -> Handling:
    """Say who looks after an error (empty: nobody) and why, or what is known; audited.

    Raises Invalid for a fingerprint that is none, an account that does not exist, and an empty note.
    """
    _check(fingerprint, note)
    if assignee and not get_user_model().objects.filter(username=assignee, is_active=True).exists():
        raise Invalid.at("/assignee", f"There is no account {assignee!r}.")
    with transaction.atomic():
        before = Handling.objects.select_for_update().filter(fingerprint=fingerprint).first()
        values = {"assignee": assignee, "note": note, "actor": actor, "at": Now()}
        held, _ = Handling.objects.update_or_create(fingerprint=fingerprint, defaults=values)
        audit.record(
            "group.assign",
            f"fingerprint:{fingerprint}",
            actor=actor,
            reason=note,
            details={"before": "" if before is None else before.assignee, "after": assignee},
        )
    held.refresh_from_db()
    return held


def snooze(
    fingerprint: str,
    *,
    for_s: int,
    note: str,
    actor: str,
    known_issue: str = "",
    wakes_after: int | None = None,
    now: datetime | None = None,
) -> Handling:
    """Let an error call for no attention for `for_s` seconds, or until `wakes_after` more dead letters came (as many
    as it has now, at least 20); audited. `known_issue`: where it is being mended; empty: as it was.

    Raises NotFound for an error that has no dead letters, Invalid for what is out of bounds.
    """
    _check(fingerprint, note)
    if not SNOOZE_SECONDS_MIN <= for_s <= SNOOZE_SECONDS_MAX:
        raise Invalid.at(
            "/for_s", f"A snooze lasts {SNOOZE_SECONDS_MIN:,} to {SNOOZE_SECONDS_MAX:,} seconds."
        )
    if wakes_after is not None and not 0 <= wakes_after <= WAKES_AFTER_MAX:
        raise Invalid.at("/wakes_after", f"Between 0 and {WAKES_AFTER_MAX:,} more end a snooze.")
    if len(known_issue) > ISSUE_CHARS_MAX or not known_issue.isprintable():
        raise Invalid.at(
            "/known_issue", f"A known issue is one line of at most {ISSUE_CHARS_MAX} characters."
        )
    has = groups.one(fingerprint, scope=FLEET).count
    at = now or campaigns.clock()
    values: dict[str, Any] = {
        "snoozed_at": at,
        "snoozed_until": at + timedelta(seconds=for_s),
        "snoozed_by": actor,
        "snooze_note": note,
        "wakes_after": max(WAKES_AFTER_MIN, has) if wakes_after is None else wakes_after,
        **({"known_issue": known_issue} if known_issue else {}),
    }
    told: dict[str, Any] = {
        name: str(values[name]) for name in ("snoozed_until", "wakes_after", "known_issue") if name in values
    }
    with transaction.atomic():
        held, _ = Handling.objects.update_or_create(fingerprint=fingerprint, defaults=values)
        audit.record("group.snooze", f"fingerprint:{fingerprint}", actor=actor, reason=note, details=told)
    held.refresh_from_db()
    return held


def wake(fingerprint: str, *, note: str, actor: str) -> Handling:
    """End a snooze; audited. Raises NotFound when there is none, Invalid."""
    _check(fingerprint, note)
    none = {
        "snoozed_at": None,
        "snoozed_until": None,
        "snoozed_by": "",
        "snooze_note": "",
        "wakes_after": None,
    }
    with transaction.atomic():
        if not Handling.objects.filter(fingerprint=fingerprint).exclude(snoozed_until=None).update(**none):
            raise NotFound("That error is not snoozed.")
        audit.record("group.wake", f"fingerprint:{fingerprint}", actor=actor, reason=note)
        return Handling.objects.get(fingerprint=fingerprint)


def _check(fingerprint: str, note: str) -> None:
    if _FINGERPRINT(fingerprint) is None:
        raise Invalid.at("/fingerprint", "A fingerprint has 16 hexadecimal digits.")
    if not note.strip():
        raise Invalid.at("/note", "A note must say why.")
    if len(note) > REASON_CHARS_MAX:
        raise Invalid.at("/note", f"A note has at most {REASON_CHARS_MAX:,} characters.")
