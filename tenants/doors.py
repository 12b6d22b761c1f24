"""The doors for people: a password whose guesses are slowed down, then the code of who has an authenticator.

A session that a password opened is nobody's until its code came: `CodesMiddleware` leads every page to the one that
asks for it. So the rule holds for every door that there is, and for sessions that were open when the account got its
authenticator.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import segno
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from jobsplatform import frame, refusals
from jobsplatform.acting import present
from jobsplatform.errors import Invalid, JobsPlatformError, RateLimited
from jobsplatform.http import address_of
from jobsplatform.wording import describe
from tenants import authenticators, logins

PASSED: Final = "authenticator"  # in the session: the id of the one whose code came
COOKIELESS: Final = ("/v1/", "/livez", "/readyz", "/metrics")  # these know no sessions
QR_SCALE: Final = 5


class SlowGuesses(AuthenticationForm):
    """Who guesses passwords has to wait, with the right one too; all doors count together."""

    def clean(self) -> dict[str, Any]:
        name, address = str(self.cleaned_data.get("username", "")), address_of(self.request)
        wait_s = logins.attempt(name, address)
        if wait_s:
            raise forms.ValidationError(logins.waiting(wait_s), code="throttled")
        cleaned: dict[str, Any] = super().clean()
        logins.succeeded(name, address)
        return cleaned


class StaffLoginForm(SlowGuesses, AdminAuthenticationForm):
    """The operators' door."""


# What a session owes


def owed(request: HttpRequest) -> str | None:
    """The page that a session has to pass before any other; None: none."""
    held = authenticators.of(request.user)
    if held is None:
        return reverse("admin:codes") if authenticators.is_required_of(request.user) else None
    return None if request.session.get(PASSED) == held.pk else reverse("login_code")


class CodesMiddleware:
    """Leads whoever owes a code, or must get an authenticator, to the page for it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            where = self._led_to(request)
        except (OperationalError, InterfaceError):  # who this is nobody can say: no view is reached
            return refusals.unanswered()
        return self.get_response(request) if where is None else HttpResponseRedirect(where)

    def _led_to(self, request: HttpRequest) -> str | None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path.startswith(COOKIELESS):
            return None
        if not request.user.is_authenticated:
            return None
        where = owed(request)
        leaving = (reverse("admin:logout"), reverse("portal:logout"))
        if where is None or request.path in leaving or request.path in (where, f"{where}picture.svg"):
            return None
        query = urlencode({"next": request.get_full_path()}, safe="/")
        return f"{where}?{query}" if request.method == "GET" else where


def _pass(request: HttpRequest, authenticator_id: int) -> None:
    """From here on the session is its account's."""
    request.session.cycle_key()
    request.session[PASSED] = authenticator_id


# The page that asks for the code


class CodeForm(forms.Form):
    """Six digits from the app."""

    code = forms.CharField(
        max_length=20,
        help_text="Six digits. Each works once.",
        widget=forms.TextInput(
            attrs={"inputmode": "numeric", "autocomplete": "one-time-code", "autofocus": True}
        ),
    )


@require_http_methods(["GET", "HEAD", "POST"])
def code_page(request: HttpRequest) -> HttpResponse:
    """The second step of logging in."""
    if not request.user.is_authenticated:
        return HttpResponseRedirect(reverse(settings.LOGIN_URL))
    onwards = _onwards(request)
    if owed(request) != request.path:
        return HttpResponseRedirect(onwards)
    form = CodeForm(request.POST or None)
    status = 200
    if request.method == "POST" and form.is_valid():
        try:
            _pass(request, authenticators.check(request.user, form.cleaned_data["code"], address_of(request)))
            return HttpResponseRedirect(onwards)
        except (Invalid, RateLimited) as error:
            form.add_error(None, _said(error))
            status = 429 if isinstance(error, RateLimited) else 200
    context = {"title": "Log in: code", "site_title": "Jobs Platform", "form": form, "next": onwards}
    return TemplateResponse(request, "tenants/code.html", context, status=status)


def _onwards(request: HttpRequest) -> str:
    """Where the session was going; never to another site."""
    asked = request.POST.get("next", request.GET.get("next", ""))
    if url_has_allowed_host_and_scheme(asked, {request.get_host()}, require_https=request.is_secure()):
        return asked
    return reverse("admin:index" if request.user.is_staff else "portal:own")


def _said(error: JobsPlatformError) -> str:
    return error.detail if isinstance(error, Invalid) else describe(error)


# One's own authenticator


@frame.screen("codes/", name="codes", title="Log-in codes", permission=None)
def codes(request: HttpRequest) -> HttpResponse:
    """Get an authenticator, or give one's own up."""
    user: Any = request.user
    held, begun = authenticators.of(user), authenticators.pending(user)
    form = CodeForm(request.POST if "code" in request.POST else None)
    if request.method == "POST" and held is None and "begin" in request.POST:
        authenticators.begin(user)
        return HttpResponseRedirect(request.get_full_path())
    if request.method == "POST" and form.is_valid():
        try:
            return _changed(request, form.cleaned_data["code"], is_held=held is not None)
        except JobsPlatformError as error:
            form.add_error("code", _said(error))
    secret = None if begun is None else authenticators.secret(begun)
    context = {
        "held": held,
        "begun": begun,
        "secret": None
        if secret is None
        else " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        "uri": None if begun is None else authenticators.uri(begun),
        "form": form,
        "is_required": authenticators.is_required_of(user),
    }
    return frame.page(request, "admin/tenants/codes.html", context, title="Log-in codes")


def _changed(request: HttpRequest, code: str, *, is_held: bool) -> HttpResponse:
    user, address = request.user, address_of(request)
    if is_held:
        authenticators.remove(user, code, address, actor=present())
        request.session.pop(PASSED, None)
        messages.success(request, "Your password is enough again.")
        return HttpResponseRedirect(request.path)
    _pass(request, authenticators.confirm(user, code, address, actor=present()).pk)
    messages.success(
        request, "From now on a log-in asks for a code. Other open sessions have to give one too."
    )
    return HttpResponseRedirect(_onwards(request) if "next" in request.GET else request.path)


@frame.screen("codes/picture.svg", name="codes_picture", title="Log-in codes", permission=None)
def picture(request: HttpRequest) -> HttpResponse:
    """The secret of an authenticator that is being set up, as a picture for its app; once it is in use, nothing."""
    begun = authenticators.pending(request.user)
    if begun is None:
        raise Http404
    drawn = segno.make(authenticators.uri(begun), error="m", micro=False)
    text = io.BytesIO()
    drawn.save(text, kind="svg", scale=QR_SCALE, border=4, dark="#000", light="#fff")
    return HttpResponse(text.getvalue(), content_type="image/svg+xml")
