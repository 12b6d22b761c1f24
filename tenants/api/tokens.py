"""Calls about tokens: make, list, rotate, end; nobody meets a token that can do more than it may grant."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import QuerySet

from jobsplatform import cursors
from jobsplatform.errors import InsufficientScope, Invalid, NotFound
from jobsplatform.fields import Choice, Instant, Integer, Name, Text
from jobsplatform.http import Call, Endpoint, Reply
from jobsplatform.instants import format_instant, format_optional
from jobsplatform.schemas import INSTANT, INSTANT_OR_NULL, TEXT, TEXT_OR_NULL, described, page_of, words
from jobsplatform.scopes import ALL as SCOPES
from jobsplatform.shapes import ListOf, Shape
from tenants import access
from tenants.models import ApiToken, Tenant

QUEUES_MAX: Final = 100
_PUBLIC_ID: Final = re.compile("[0-9a-z]{1,16}").fullmatch

NEW_TOKEN: Final = Shape(
    "NewToken",
    Text(name="name", default="", chars_max=access.NAME_CHARS_MAX),
    ListOf(name="scopes", item=Choice(choices=sorted(SCOPES)), low=1, high=len(SCOPES), required=True),
    ListOf(name="queues", item=Name(), low=1, high=QUEUES_MAX, doc="Absent: every queue."),
    Instant(name="expires_at", doc="Absent: until it is ended."),
)
ROTATE: Final = Shape(
    "RotateToken",
    Integer(
        name="overlap_s", high=access.OVERLAP_SECONDS_MAX, default=0, doc="How long the old text goes on."
    ),
)
MEMBERS: Final = {
    "id": TEXT,
    "tenant": TEXT_OR_NULL,
    "name": TEXT,
    "scopes": {"type": "array", "items": words(sorted(SCOPES))},
    "queues": {"type": ["array", "null"], "items": TEXT},
    "expires_at": INSTANT_OR_NULL,
    "last_used_at": INSTANT_OR_NULL,
    "created_at": INSTANT,
}
TOKEN: Final = described("Token", MEMBERS)
TOKEN_MADE: Final = described("TokenMade", {**MEMBERS, "token": TEXT})


class ListTokens(Endpoint):
    """Tokens that are not ended, newest first; never their secrets."""

    query = cursors.listing_query("TokenPage")
    replies = {200: page_of(TOKEN)}

    def check(self, call: Call) -> None:
        self.before = cursors.read(call)

    def act(self, call: Call) -> Reply:
        tokens = reachable(call).order_by("-pk")
        if self.before is not None:
            tokens = tokens.filter(pk__lt=self.before[0])
        limit = call.query["limit"]
        found = list(tokens[: limit + 1])
        following = cursors.write(call, (found[limit - 1].pk,) if len(found) > limit else None)
        return Reply(200, {"items": [shown(token) for token in found[:limit]], "next": following})


class CreateToken(Endpoint):
    """Make a token for the caller's tenant, or for the fleet; its text is in this answer and nowhere else."""

    body = NEW_TOKEN
    replies = {201: TOKEN_MADE}

    def check(self, call: Call) -> None:
        expires_at = call.body["expires_at"]
        if expires_at is not None and expires_at <= datetime.now(UTC):
            raise Invalid.at("/expires_at", "Is not in the future.", "range")

    def act(self, call: Call) -> Reply:
        queues = call.body["queues"]
        allowed = call.known.queue_names
        if allowed is not None and (queues is None or not allowed.issuperset(queues)):
            raise InsufficientScope("The token may grant only the queues that it has itself.")
        access.check_queues(queues)
        token, text = access.create_token(
            tenant=None if call.tenant is None else Tenant.objects.get(pk=call.tenant.id),
            scopes=call.body["scopes"],
            actor=call.known.actor,
            name=call.body["name"],
            queues=queues,
            expires_at=call.body["expires_at"],
        )
        return Reply(201, {**shown(token), "token": text}, {"Location": f"/v1/tokens/{token.public_id}"})


class RotateToken(Endpoint):
    """Give a token a new secret; the old one goes on for `overlap_s`."""

    body = ROTATE
    replies = {200: TOKEN_MADE}

    def act(self, call: Call) -> Reply:
        overlap_s = call.body["overlap_s"]
        token, text = access.rotate_token(asked_for(call), overlap_s=overlap_s, actor=call.known.actor)
        return Reply(200, {**shown(token), "token": text})


class EndToken(Endpoint):
    """End a token for good."""

    replies = {204: {}}

    def act(self, call: Call) -> Reply:
        access.revoke_token(asked_for(call), actor=call.known.actor)
        return Reply(204)


def reachable(call: Call) -> QuerySet[ApiToken]:
    """The live tokens that a caller may see and change: its tenant's, of queues that it has itself."""
    tokens = ApiToken.objects.filter(revoked_at=None).select_related("tenant")
    if call.tenant is not None:
        tokens = tokens.filter(tenant_id=call.tenant.id)
    if call.known.queue_names is not None:
        tokens = tokens.filter(queues__contained_by=sorted(call.known.queue_names))
    return tokens


def asked_for(call: Call) -> ApiToken:
    """The token that the path names. Raises NotFound."""
    public_id = call.path["token_id"]
    token = reachable(call).filter(public_id=public_id).first() if _PUBLIC_ID(public_id) else None
    if token is None:
        raise NotFound
    return token


def shown(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.public_id,
        "tenant": None if token.tenant is None else token.tenant.slug,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "queues": token.queues,
        "expires_at": format_optional(token.expires_at),
        "last_used_at": format_optional(token.last_used_at),
        "created_at": format_instant(token.created_at),
    }
