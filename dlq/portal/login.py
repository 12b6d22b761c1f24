"""Coming in and going out, and the choice of a tenant for people who belong to several."""

from __future__ import annotations

from django.contrib.auth import views
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse, reverse_lazy

from tenants import members
from tenants.doors import SlowGuesses


class LogIn(views.LoginView):
    """For members and operators alike; it tells nothing of who exists."""

    authentication_form = SlowGuesses
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
