"""A tenant's tokens: made, shown once, given new secrets, ended. For admins of the tenant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from django.utils import timezone

from dlq.portal.door import Visit
from dlq.portal.forms import TokenForm
from dlq.portal.start import snippets
from jobsplatform.adminsite import ReasonForm
from jobsplatform.errors import JobsPlatformError
from jobsplatform.wording import describe
from tenants import access
from tenants.forms import RotateForm
from tenants.members import Right
from tenants.models import ApiToken


def tokens(visit: Visit) -> HttpResponse:
    """Live tokens; never their secrets."""
    visit.member.require_look(Right.MANAGE)
    rows = [
        (token, visit.url("token_rotate", token.public_id), visit.url("token_revoke", token.public_id))
        for token in access.live_tokens(visit.member.tenant)
    ]
    return visit.page("portal/tokens.html", {"rows": rows, "new": visit.url("token_new")}, title="Tokens")


def new(visit: Visit) -> HttpResponse:
    """Ask what it may, then show it, in that answer alone."""
    visit.member.require(Right.MANAGE)
    form = TokenForm(visit.request.POST or None)
    if visit.is_post and form.is_valid():
        said = form.cleaned_data
        days = said["expires_in_days"]
        try:
            token, text = access.create_token(
                tenant=visit.member.tenant,
                scopes=said["scopes"],
                queues=said["queues"],
                name=said["name"],
                expires_at=None if days is None else timezone.now() + timedelta(days=days),
                actor=visit.member.actor,
            )
        except JobsPlatformError as error:
            form.add_error(None, describe(error))
        else:
            return _shown(visit, token, text)
    context = {
        "form": form,
        "intro": "It acts for the tenant wherever its scopes allow. Its secret is shown once.",
        "submit": "Make the token",
        "back": visit.url("tokens"),
    }
    return visit.page("portal/ask.html", context, title="New token", crumbs=_crumbs(visit))


def rotate(visit: Visit, token: str) -> HttpResponse:
    """Ask how the old secret ends, then show the new one, in that answer alone."""
    held = _token(visit, token)
    shown: list[tuple[ApiToken, str]] = []

    def act(said: Mapping[str, Any]) -> str:
        overlap_s = said["overlap_s"] or 0
        shown.append(
            access.rotate_token(held, overlap_s=overlap_s, actor=visit.member.actor, reason=said["reason"])
        )
        return "The token has a new secret."

    answer = visit.ask(
        RotateForm(visit.request.POST or None),
        act,
        right=Right.MANAGE,
        title=f"Rotate {held}",
        intro="It gets a new secret, shown once. Its id, scopes and queues stay.",
        submit="Rotate",
        back=visit.url("tokens"),
        crumbs=_crumbs(visit),
    )
    return _shown(visit, *shown[0]) if shown else answer


def revoke(visit: Visit, token: str) -> HttpResponse:
    """Ask, then end it."""
    held = _token(visit, token)

    def act(said: Mapping[str, Any]) -> str:
        access.revoke_token(held, actor=visit.member.actor, reason=said["reason"])
        return f"{held} is ended."

    return visit.ask(
        ReasonForm(visit.request.POST or None),
        act,
        right=Right.MANAGE,
        title=f"Revoke {held}",
        intro="It ends for good, everywhere within five seconds.",
        submit="Revoke",
        back=visit.url("tokens"),
        crumbs=_crumbs(visit),
    )


def _token(visit: Visit, public_id: str) -> ApiToken:
    visit.member.require(Right.MANAGE)
    return access.live_token(public_id, tenant=visit.member.tenant)


def _shown(visit: Visit, token: ApiToken, text: str) -> HttpResponse:
    context = {"token": token, "text": text, "snippets": snippets(visit.request, text, token.queues)}
    return visit.page("portal/token_made.html", context, title="Token made", crumbs=_crumbs(visit))


def _crumbs(visit: Visit) -> list[tuple[str, str]]:
    return [("Tokens", visit.url("tokens"))]
