"""API tokens: made, shown once, kept as keyed digests, checked in constant time, rotated and revoked.

A token is `jp_<id>_<secret>`; the secret has 192 random bits, so a fast keyed hash is the right one. What a token
may do is remembered for at most five seconds a process, and for fifteen minutes while the control database is away;
unknown tokens are never remembered.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobsplatform.errors import FieldError, Invalid, NotFound, Unauthenticated, Unavailable
from jobsplatform.scopes import ALL as SCOPES
from tenants import audit
from tenants.models import ApiToken, Tenant

CACHE_SECONDS: Final = 5.0
AWAY_SECONDS: Final = (
    900.0  # without control revocations wait so long at most; after that nobody is known any more
)
CACHE_MAX: Final = 10_000  # tokens a process remembers
LAST_USED_STEP: Final = timedelta(minutes=1)  # how exact `last_used_at` is kept
NAME_CHARS_MAX: Final = 200
OVERLAP_SECONDS_MAX: Final = 7 * 24 * 3_600
TOKENS_SHOWN_MAX: Final = 500

_TOKEN = re.compile(r"jp_([0-9a-z]{12})_([A-Za-z0-9_-]{32})\Z", re.ASCII)
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_NO_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class TenantRef:
    """A tenant as an edge needs it."""

    id: int
    slug: str
    is_suspended: bool


@dataclass(frozen=True, slots=True)
class Caller:
    """Who holds a token, and what it allows; `tenant` None is the fleet, `queue_names` None every queue."""

    token_id: int
    public_id: str
    tenant: TenantRef | None
    scopes: frozenset[str]
    queue_names: frozenset[str] | None

    @property
    def actor(self) -> str:
        """How the audit names this caller."""
        return f"token:{self.public_id}"


_cache: dict[bytes, tuple[float, Caller]] = {}  # when it was read, by this process's own clock
_tenants: dict[str, tuple[float, TenantRef]] = {}


def digest(secret: str) -> bytes:
    """HMAC-SHA-256 of a secret under the server's pepper."""
    return hmac.digest(settings.TOKEN_PEPPER, secret.encode(), hashlib.sha256)


# Checking


def authenticate(header: str | None) -> Caller:
    """The caller behind an Authorization header. Raises Unauthenticated; every wrong token costs the same."""
    scheme, _, text = (header or "").partition(" ")
    match = _TOKEN.match(text.strip()) if scheme.lower() == "bearer" else None
    if match is None:
        raise Unauthenticated
    presented = digest(match[2])
    key = match[1].encode() + presented
    held = _cache.get(key)
    if held is not None and _is_young(held[0], CACHE_SECONDS):
        return held[1]
    try:
        caller = _look_up(match[1], presented)
    except Unauthenticated:
        _cache.pop(key, None)  # it must not be let in when control is away a moment later
        raise
    except (OperationalError, InterfaceError) as error:
        if held is not None and _is_young(held[0], AWAY_SECONDS):
            return held[1]
        raise Unavailable("Who calls cannot be found out at the moment.") from error
    if len(_cache) >= CACHE_MAX:
        _cache.clear()
    _cache[key] = (time.monotonic(), caller)
    return caller


def _is_young(read_at: float, seconds: float) -> bool:
    return time.monotonic() - read_at < seconds


def _look_up(public_id: str, presented: bytes) -> Caller:
    live = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=Now()))
    overlap = Q(previous_until__gt=Now())
    token = (
        ApiToken.objects.filter(live, public_id=public_id)
        .select_related("tenant")
        .annotate(
            has_overlap=overlap,
            is_long_unused=Q(last_used_at=None) | Q(last_used_at__lt=Now() - LAST_USED_STEP),
        )
        .first()
    )
    current = bytes(token.digest) if token else _NO_DIGEST
    previous = bytes(token.previous_digest or _NO_DIGEST) if token and token.has_overlap else _NO_DIGEST
    matches = hmac.compare_digest(current, presented) | hmac.compare_digest(previous, presented)
    if token is None or not matches:
        raise Unauthenticated
    if token.is_long_unused:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=Now())
    return Caller(
        token_id=token.pk,
        public_id=token.public_id,
        tenant=_ref(token.tenant) if token.tenant else None,
        scopes=frozenset(token.scopes),
        queue_names=None if token.queues is None else frozenset(token.queues),
    )


def tenant_by_slug(slug: str) -> TenantRef | None:
    """The tenant of that slug, at most five seconds old; an absent one is asked for anew each time."""
    held = _tenants.get(slug)
    if held is not None and _is_young(held[0], CACHE_SECONDS):
        return held[1]
    try:
        tenant = Tenant.objects.filter(slug=slug).first()
    except (OperationalError, InterfaceError) as error:
        if held is not None and _is_young(held[0], AWAY_SECONDS):
            return held[1]
        raise Unavailable("Which tenant that is cannot be found out at the moment.") from error
    if tenant is None:
        _tenants.pop(slug, None)
        return None
    if len(_tenants) >= CACHE_MAX:
        _tenants.clear()
    _tenants[slug] = (time.monotonic(), _ref(tenant))
    return _tenants[slug][1]


def _ref(tenant: Tenant) -> TenantRef:
    return TenantRef(tenant.pk, tenant.slug, tenant.is_suspended)


def forget() -> None:
    """Drop what is remembered."""
    _cache.clear()
    _tenants.clear()


# Making and ending


_unknown: Callable[[Sequence[str]], Collection[str]] = lambda names: ()  # noqa: E731


def knows_queues(unknown: Callable[[Sequence[str]], Collection[str]]) -> None:
    """How the queue tells which of some names are none of its queues."""
    global _unknown
    _unknown = unknown


def check_queues(names: Sequence[str] | None) -> None:
    """Raise Invalid at the first name that is no queue's: such a token would do nothing, and nobody would know why."""
    unknown = _unknown(names) if names else ()
    for place, name in enumerate(names or ()):
        if name in unknown:
            raise Invalid.at(f"/queues/{place}", f"There is no queue {name!r}.", "unknown_queue")


def create_token(
    *,
    tenant: Tenant | None,
    scopes: Iterable[str],
    actor: str,
    name: str = "",
    queues: Iterable[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Make a token; its text is in this answer and nowhere else. `tenant` None: a fleet token. Raises Invalid."""
    wanted = list(dict.fromkeys(scopes))
    _check(wanted, name)
    text, public_id, kept = _new_text()
    with transaction.atomic():
        token = ApiToken.objects.create(
            tenant=tenant,
            public_id=public_id,
            digest=kept,
            name=name,
            scopes=wanted,
            queues=None if queues is None else sorted(set(queues)),
            expires_at=expires_at,
        )
        token.refresh_from_db()
        _tell("create", token, actor, {"scopes": wanted, "queues": token.queues})
    return token, text


def rotate_token(token: ApiToken, *, overlap_s: int, actor: str, reason: str = "") -> tuple[ApiToken, str]:
    """Give a token a new secret; the old one goes on for `overlap_s` seconds (0: ends within five)."""
    secret = secrets.token_urlsafe(24)
    with transaction.atomic():
        held = ApiToken.objects.select_for_update().filter(pk=token.pk, revoked_at=None).first()
        if held is None:
            raise NotFound
        held.previous_digest, held.digest = bytes(held.digest), digest(secret)
        held.previous_until = Now() + timedelta(seconds=overlap_s)
        held.save(update_fields=["digest", "previous_digest", "previous_until"])
        held.refresh_from_db()
        _tell("rotate", held, actor, {"overlap_s": overlap_s}, reason)
    return held, f"jp_{held.public_id}_{secret}"


def revoke_token(token: ApiToken, *, actor: str, reason: str = "") -> None:
    """End a token for good; every process knows within five seconds."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=Now()):
            _tell("revoke", token, actor, {}, reason)
    forget()


def live_token(public_id: str, *, tenant: Tenant | None = None) -> ApiToken:
    """A token that is not ended, by the id in its text. With `tenant`: of that tenant. Raises NotFound."""
    tokens = ApiToken.objects.filter(public_id=public_id, revoked_at=None).select_related("tenant")
    token = (tokens if tenant is None else tokens.filter(tenant=tenant)).first()
    if token is None:
        raise NotFound(f"There is no live token {public_id!r}." if tenant is None else "")
    return token


def live_tokens(tenant: Tenant | None) -> list[ApiToken]:
    """The tokens of a tenant that are not ended, newest first; None: of the fleet."""
    return list(ApiToken.objects.filter(tenant=tenant, revoked_at=None).order_by("-pk")[:TOKENS_SHOWN_MAX])


def _check(scopes: list[str], name: str) -> None:
    errors = [
        FieldError(
            f"/scopes/{index}",
            "unknown",
            f"There is no scope {scope!r}; there are {', '.join(sorted(SCOPES))}.",
        )
        for index, scope in enumerate(scopes)
        if scope not in SCOPES
    ]
    if not scopes:
        errors.append(FieldError("/scopes", "required", "A token needs at least one scope."))
    if len(name) > NAME_CHARS_MAX:
        errors.append(FieldError("/name", "too_long", f"A name has at most {NAME_CHARS_MAX} characters."))
    if errors:
        raise Invalid(errors=errors)


def _new_text() -> tuple[str, str, bytes]:
    public_id = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    secret = secrets.token_urlsafe(24)
    return f"jp_{public_id}_{secret}", public_id, digest(secret)


def _tell(verb: str, token: ApiToken, actor: str, details: dict[str, object], reason: str = "") -> None:
    audit.record(
        f"token.{verb}",
        f"token:{token.public_id}",
        actor=actor,
        tenant_id=token.tenant_id,
        reason=reason,
        details=details,
    )
