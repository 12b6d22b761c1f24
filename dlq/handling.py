"""Who looks after an error, and what is known of it: one row a fingerprint, for the operators alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.functions import Now

from dlq.models import Handling
from jobqueue.limits import REASON_CHARS_MAX
from jobsplatform.errors import Invalid
from tenants import audit

_FINGERPRINT = re.compile(r"[0-9a-f]{16}").fullmatch


def of(fingerprints: Sequence[str]) -> dict[str, Handling]:
    """Fingerprint → who looks after it, of those that somebody does."""
    return {row.fingerprint: row for row in Handling.objects.filter(fingerprint__in=fingerprints)}


def assign(fingerprint: str, *, assignee: str, note: str, actor: str) -> Handling:
    """Say who looks after an error (empty: nobody) and why, or what is known; audited.

    Raises Invalid for a fingerprint that is none, an account that does not exist, and an empty note.
    """
    if _FINGERPRINT(fingerprint) is None:
        raise Invalid.at("/fingerprint", "A fingerprint has 16 hexadecimal digits.")
    if not note.strip():
        raise Invalid.at("/note", "A note must say why.")
    if len(note) > REASON_CHARS_MAX:
        raise Invalid.at("/note", f"A note has at most {REASON_CHARS_MAX:,} characters.")
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
