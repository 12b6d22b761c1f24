"""Codes of the second step of logging in (TOTP, RFC 6238): an account's authenticator, and that each code works once.

The secret is derived from the platform's pepper and a random seed, so that no database holds it. A code is judged by
the control database's clock; it is used up in the statement that takes it, so two that send it at once cannot both be
in. Guesses are slowed down as those of passwords are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from typing import Any, Final

import pyotp
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction

from jobsplatform import events, sql
from jobsplatform.errors import Invalid, NotFound, RateLimited
from tenants import audit, logins
from tenants.models import Authenticator

STEP_SECONDS: Final = 30
STEPS_OFF: Final = 1  # a phone's clock may be half a minute off, and a person that slow
SECRET_BYTES: Final = 20  # what RFC 4226 recommends
SEED_BYTES: Final = 16
ISSUER: Final = "Jobs Platform"


def of(user: Any) -> Authenticator | None:
    """The authenticator that an account's logins need; None: a password is enough."""
    return Authenticator.objects.filter(user_id=user.pk).exclude(confirmed_at=None).first()


def is_required_of(user: Any) -> bool:
    """Whether the installation wants that account to have one."""
    return bool(settings.JOBS_STAFF_CODES_REQUIRED and user.is_staff)


# Beginning


def pending(user: Any) -> Authenticator | None:
    """The one that was begun and has shown no code yet."""
    return Authenticator.objects.filter(user_id=user.pk, confirmed_at=None).first()


def begin(user: Any) -> Authenticator:
    """Begin a fresh one in place of one that was never confirmed; one in use stays, and is answered."""
    with transaction.atomic():
        Authenticator.objects.filter(user_id=user.pk, confirmed_at=None).delete()
        seed = {"seed": secrets.token_bytes(SEED_BYTES)}
        return Authenticator.objects.get_or_create(user_id=user.pk, defaults=seed)[0]


def secret(authenticator: Authenticator) -> str:
    """What the app must be told, in Base32."""
    return _secret(authenticator.user_id, bytes(authenticator.seed))


def uri(authenticator: Authenticator) -> str:
    """The same as an address that apps read from a picture."""
    issuer = f"{ISSUER} ({settings.ENVIRONMENT})"
    name = authenticator.user.get_username()
    return pyotp.TOTP(secret(authenticator)).provisioning_uri(name=name, issuer_name=issuer)


def confirm(user: Any, code: str, address: str, *, actor: str, now: datetime | None = None) -> Authenticator:
    """Put it into use by its first code. Raises Invalid, RateLimited."""
    _slow_down(user, address, now)
    with transaction.atomic():
        taken = _take(user, code, is_confirmed=False, now=now)
        audit.record("authenticator.add", _target(user), actor=actor)
    logins.code_succeeded(user.get_username(), address)
    return Authenticator.objects.get(pk=taken)


# Using


def check(user: Any, code: str, address: str, now: datetime | None = None) -> int:
    """Take a code that was sent from `address`. Returns the authenticator's id. Raises Invalid, RateLimited."""
    _slow_down(user, address, now)
    taken = _take(user, code, is_confirmed=True, now=now)
    logins.code_succeeded(user.get_username(), address)
    return taken


def remove(user: Any, code: str, address: str, *, actor: str, now: datetime | None = None) -> None:
    """Let a password be enough again; whoever asks must have the app. Raises Invalid, RateLimited."""
    if is_required_of(user):
        raise Invalid.at("/code", "Here every operator needs one.")
    _slow_down(user, address, now)
    with transaction.atomic():
        taken = _take(user, code, is_confirmed=True, now=now)
        Authenticator.objects.filter(pk=taken).delete()
        audit.record("authenticator.remove", _target(user), actor=actor)
    logins.code_succeeded(user.get_username(), address)


def reset(username: str, *, actor: str, reason: str = "") -> None:
    """Take an account's authenticator away, for a person whose app is lost. Raises NotFound."""
    user = get_user_model()._default_manager.filter(username=username).first()
    if user is None:
        raise NotFound(f"There is no user {username!r}.")
    with transaction.atomic():
        gone, _ = Authenticator.objects.filter(user_id=user.pk).delete()
        if not gone:
            raise NotFound(f"{username!r} has no authenticator.")
        audit.record("authenticator.reset", _target(user), actor=actor, reason=reason)


def in_use() -> list[Authenticator]:
    """Those of all accounts, by name; the ones not confirmed yet too."""
    return list(Authenticator.objects.select_related("user").order_by("user__username"))


# Steps


def _slow_down(user: Any, address: str, now: datetime | None) -> None:
    wait_s = logins.attempt_code(user.get_username(), address, now)
    if wait_s:
        raise RateLimited(logins.waiting(wait_s), retry_after=int(wait_s) + 1)


def _take(user: Any, code: str, *, is_confirmed: bool, now: datetime | None) -> int:
    """Use up a code. Returns the authenticator's id. Raises Invalid."""
    found = sql.rows("tenants/authenticator_look", {"user_id": user.pk, "now": now}, alias="default")
    if found and found[0][2] == is_confirmed:
        held, seed, _, at = found[0]
        step = _step_of(_secret(user.pk, bytes(seed)), code, int(at // STEP_SECONDS))
        params = {"id": held, "step": step, "is_confirmed": is_confirmed, "now": now}
        if step is not None and sql.rows("tenants/authenticator_take", params, alias="default", writes=True):
            return int(held)
    events.emit("code_refused")
    raise Invalid.at("/code", "That code is wrong, too old, or was used before. Wait for the next one.")


def _step_of(key: str, code: str, present: int) -> int | None:
    """The half minute whose code this is, near the present one; all are compared, whichever it is."""
    said = "".join(code.split()).encode("utf-8", "replace")
    app = pyotp.TOTP(key, interval=STEP_SECONDS)
    near = range(present - STEPS_OFF, present + STEPS_OFF + 1)
    right = [step for step in near if hmac.compare_digest(app.generate_otp(step).encode(), said)]
    return right[-1] if right else None


def _secret(user_id: int, seed: bytes) -> str:
    said = b"totp:%d:" % user_id + seed
    key = hmac.digest(settings.TOKEN_PEPPER, said, hashlib.sha256)[:SECRET_BYTES]
    return base64.b32encode(key).decode()


def _target(user: Any) -> str:
    return f"user:{user.get_username()}"
