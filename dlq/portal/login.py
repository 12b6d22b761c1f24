"""Coming in and going out, and the choice of a tenant for people who belong to several."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.contrib.auth import views
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse, reverse_lazy

from jobsplatform.http import address_of
from tenants import logins, members


class LogInForm(AuthenticationForm):
    """Who guesses passwords has to wait, with the right one too; the operators' door counts with this one."""

    def clean(self) -> dict[str, Any]:
        name, address = str(self.cleaned_data.get("username", "")), address_of(self.request)
        wait_s = logins.attempt(name, address)
        if wait_s:
            minutes = math.ceil(wait_s / 60)
            said = f"Too many attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}."
            raise forms.ValidationError(said, code="throttled")
        cleaned: dict[str, Any] = super().clean()
        logins.succeeded(name, address)
        return cleaned


class LogIn(views.LoginView):
    """For members and operators alike; it tells nothing of who exists."""

    authentication_form = LogInForm
    template_name = "portal/login.html"
    redirect_authenticated_user = True
    extra_context = {"title": "Log in", "site_title": "Jobs Platform"}

    def get_default_redirect_url(self) -> str:
        return reverse("portal:own")


class LogOut(views.LogoutView):
    """By POST alone."""

    def get_default_redirect_url(self) -> str:
        return reverse("portal:login")


@login_required(login_url=reverse_lazy("portal:login"))
def own_tenants(request: HttpRequest) -> HttpResponse:
    """The tenants of who is logged in; of one, its overview."""
    found = members.tenants_of(request.user)
    if len(found) == 1:
        return HttpResponseRedirect(reverse("portal:overview", args=[found[0].tenant.slug]))
    context = {"title": "Your tenants", "site_title": "Jobs Platform", "found": found}
    return TemplateResponse(request, "portal/own.html", context)
