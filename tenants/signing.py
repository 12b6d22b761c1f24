"""The secrets that a tenant's outgoing calls are signed with, and the signature itself.

The scheme is that of Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over message id, timestamp and
body. A secret is derived from the platform's pepper, the tenant and a number, so that no database holds it; a
rotation is the next number, and until the older one's end calls carry both signatures.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobsplatform.errors import Invalid
from tenants import audit, registry
from tenants.models import SigningSecret

PREFIX: Final = "whsec_"
OVERLAP_SECONDS: Final = 86_400
OVERLAP_SECONDS_MAX: Final = 30 * 86_400
REASON_CHARS_MAX: Final = 2_000


def secrets_of(tenant_id: int) -> list[bytes]:
    """What to sign with now, newest first. A tenant that never rotated has number 1."""
    valid = SigningSecret.objects.filter(Q(ends_at=None) | Q(ends_at__gt=Now()), tenant_id=tenant_id)
    numbers = list(valid.order_by("-number").values_list("number", flat=True)) or [1]
    return [_derived(tenant_id, number) for number in numbers]


def reveal(slug: str, *, actor: str, reason: str = "") -> str:
    """The newest secret as text, for whoever sets a receiver up; audited. Raises NotFound and Invalid."""
    _refuse_long(reason)
    tenant = registry.get(slug)
    with transaction.atomic():
        audit.record(
            "signing_secret.reveal", f"tenant:{slug}", actor=actor, tenant_id=tenant.pk, reason=reason
        )
    return as_text(secrets_of(tenant.pk)[0])


def rotate(slug: str, *, overlap_s: int = OVERLAP_SECONDS, actor: str, reason: str = "") -> str:
    """Begin a new secret and answer it; the one before it signs too for `overlap_s` seconds.

    Raises NotFound, and Invalid for a reason that is too long.
    """
    _refuse_long(reason)
    tenant = registry.get(slug)
    with transaction.atomic():
        type(tenant).objects.select_for_update().get(pk=tenant.pk)
        SigningSecret.objects.get_or_create(tenant=tenant, number=_latest(tenant.pk))
        older = SigningSecret.objects.filter(tenant=tenant, ends_at=None)
        older.update(ends_at=Now() + timedelta(seconds=overlap_s))
        number = _latest(tenant.pk) + 1
        SigningSecret.objects.create(tenant=tenant, number=number)
        audit.record(
            "signing_secret.rotate",
            f"tenant:{slug}",
            actor=actor,
            tenant_id=tenant.pk,
            reason=reason,
            details={"number": number, "overlap_s": overlap_s},
        )
    return as_text(_derived(tenant.pk, number))


def _refuse_long(reason: str) -> None:
    if len(reason) > REASON_CHARS_MAX:
        raise Invalid.at("/reason", f"A reason has at most {REASON_CHARS_MAX:,} characters.")


def _latest(tenant_id: int) -> int:
    found = (
        SigningSecret.objects.filter(tenant_id=tenant_id).order_by("-number").values_list("number", flat=True)
    )
    return found[0] if found else 1


def _derived(tenant_id: int, number: int) -> bytes:
    text = f"jobsplatform/signing/{tenant_id}/{number}"
    return hmac.digest(settings.TOKEN_PEPPER, text.encode(), hashlib.sha256)


def as_text(secret: bytes) -> str:
    return PREFIX + base64.b64encode(secret).decode()


def headers(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """The three headers of a signed call. `timestamp` is in Unix seconds."""
    signed = b".".join([message_id.encode(), str(timestamp).encode(), body])
    signatures = [
        base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode() for secret in secrets
    ]
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(timestamp),
        "Webhook-Signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
