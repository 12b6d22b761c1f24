"""The door of every tenant's page: a session, a membership, and one answer for everything that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from jobqueue.ids import parse_id
from jobqueue.types import Scope
from jobsplatform import frame
from jobsplatform.errors import JobsPlatformError, NotFound
from jobsplatform.frame import Fragment
from jobsplatform.wording import describe
from tenants import members
from tenants.members import Member, Right

View = Callable[..., HttpResponse]

SCREENS: Final[Sequence[tuple[str, str, Right | None]]] = (
    ("Overview", "overview", None),
    ("Jobs", "jobs", None),
    ("Dead letters", "letters", None),
    ("Limits", "limits", None),
    ("Schedules", "schedules", None),
    ("Tokens", "tokens", Right.MANAGE),
    ("Members", "people", Right.MANAGE),
    ("Quick start", "start", None),
)


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a member to a page of the tenant."""

    request: HttpRequest
    member: Member

    @property
    def scope(self) -> Scope:
        return Scope(tenant_id=self.member.tenant.pk)

    @property
    def is_post(self) -> bool:
        return self.request.method == "POST"

    def url(self, name: str, *args: object) -> str:
        """The address of a page of this tenant."""
        return reverse(f"portal:{name}", args=[self.member.tenant.slug, *args])

    def page(
        self,
        template: str,
        context: Mapping[str, Any],
        *,
        title: str,
        crumbs: Sequence[tuple[str, str]] = (),
        status: int = 200,
    ) -> HttpResponse:
        """A page in the tenant's frame."""
        whole = {**self._frame(title, crumbs), **context}
        return TemplateResponse(self.request, template, whole, status=status)

    def live_page(
        self, template: str, fragments: Mapping[str, Fragment], context: Mapping[str, Any], *, title: str
    ) -> HttpResponse:
        """A page whose parts refresh."""
        whole = {**self._frame(title, ()), **context}
        return frame.live_page(self.request, template, fragments, whole, title=title)

    def _frame(self, title: str, crumbs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {
            "title": title,
            "site_title": self.member.tenant.slug,
            "crumbs": crumbs,
            "tenant": self.member.tenant,
            "member": self.member,
            "may": {right.name.lower(): self.may(right) for right in Right},
            "screens": self._screens(),
            "has_permission": False,  # the operators' menu is not for members
        }

    def may(self, right: Right) -> bool:
        """Whether a button for it is shown; the verb's caller asks again."""
        return self.member.may(right) and (right is Right.REVEAL or not self.member.tenant.is_suspended)

    def _screens(self) -> list[dict[str, Any]]:
        own = self.url("overview")
        found = []
        for title, name, right in SCREENS:
            href = self.url(name)
            here = self.request.path == href if href == own else self.request.path.startswith(href)
            if right is None or self.member.may(right):
                found.append({"title": title, "href": href, "is_here": here})
        return found

    def ask(
        self,
        form: Any,
        act: Callable[[Mapping[str, Any]], str],
        *,
        right: Right,
        title: str,
        intro: str,
        submit: str,
        back: str,
        crumbs: Sequence[tuple[str, str]] = (),
        context: Mapping[str, Any] | None = None,
    ) -> HttpResponse:
        """A page with a form; when it is sent, `act` does the work and answers the message."""
        self.member.require(right)
        if self.is_post and form.is_valid():
            try:
                messages.success(self.request, act(form.cleaned_data))
                return HttpResponseRedirect(back)
            except NotFound:
                raise
            except JobsPlatformError as error:
                form.add_error(None, describe(error))
        page = {"form": form, "intro": intro, "submit": submit, "back": back, **(context or {})}
        return self.page("portal/ask.html", page, title=title, crumbs=crumbs)


def page(view: View, *, methods: Sequence[str] = ("GET", "HEAD")) -> View:
    """Serve `view(visit, …)` to members of the tenant that the address names.

    Whoever is not logged in is sent to the log-in page, whatever the address names. A tenant that is not theirs, a job
    that is not the tenant's and what does not exist at all are the same 404.
    """

    @wraps(view)
    def served(request: HttpRequest, slug: str, **more: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path(), reverse("portal:login"))
        if request.method not in methods:
            return HttpResponseNotAllowed(methods)
        try:
            visit = Visit(request, members.member(request.user, slug))
            try:
                return view(visit, **more)
            except NotFound:
                raise
            except JobsPlatformError as error:
                return _refused(visit, error)
        except NotFound as error:
            raise Http404 from error

    return served


def form_page(view: View) -> View:
    """As `page`, for one that takes a form."""
    return page(view, methods=("GET", "HEAD", "POST"))


def _refused(visit: Visit, error: JobsPlatformError) -> HttpResponse:
    context = {"said": describe(error)}
    answer = visit.page("portal/refused.html", context, title=error.title, status=error.status)
    if error.retry_after is not None:
        answer["Retry-After"] = str(max(1, error.retry_after))
    return answer


def job_number(text: str) -> int:
    """The job that an address names. Raises NotFound."""
    return parse_id(text)
