"""The frame of every page for people: its screens and their menu, fragments that refresh, charts, the home page.

A screen is a function `request → response` at an address of the admin, with a permission and a place in the menu. A
live page is rendered whole; a part of it is asked for again by the same address with `?fragment=<name>`, so it works
without JavaScript by being reloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

View = Callable[..., HttpResponse]
Crumb = tuple[str, str]  # text and address

FRAGMENT: Final = "fragment"  # the query parameter that asks for one part of a live page
EVERY_SECONDS: Final = 5


# Screens


@dataclass(frozen=True, slots=True)
class Screen:
    """A page of the admin. `order` is its place in the menu; None: it is not there."""

    route: str
    name: str
    title: str
    permission: str | None
    order: int | None
    view: View

    def is_for(self, request: HttpRequest) -> bool:
        return self.permission is None or request.user.has_perm(self.permission)


@dataclass(frozen=True, slots=True)
class MenuItem:
    """A line of the menu, for those who have its permission."""

    title: str
    href: str
    is_here: bool


_screens: dict[str, Screen] = {}
_lists: list[tuple[int, str, str, str]] = []


def screen(
    route: str, *, name: str, title: str, permission: str | None, order: int | None = None
) -> Callable[[View], View]:
    """Serve a function at `/admin/<route>` as `admin:<name>`, for staff with the permission (`app.verb_model`)."""

    def register(view: View) -> View:
        made = Screen(route, name, title, permission, order, view)
        if name in _screens:
            raise ValueError(f"two screens are called {name}")
        _screens[name] = made
        return view

    return register


def in_menu(title: str, name: str, *, permission: str, order: int) -> None:
    """Put a page that exists already (`admin:<name>`, such as a model's list) into the menu."""
    _lists.append((order, title, name, permission))


def urls(site: admin.AdminSite) -> list[URLPattern]:
    """The addresses of all screens."""
    return [path(one.route, site.admin_view(_guarded(one)), name=one.name) for one in _screens.values()]


def _guarded(one: Screen) -> View:
    def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not one.is_for(request):
            raise PermissionDenied
        return one.view(request, *args, **kwargs)

    return view


def menu(request: HttpRequest) -> list[MenuItem]:
    """The lines of the menu that are for this user, in their order."""
    lines = [
        (one.order, one.title, one.name)
        for one in _screens.values()
        if one.order is not None and one.is_for(request)
    ]
    lines += [(order, title, name) for order, title, name, may in _lists if request.user.has_perm(may)]
    found = [(title, reverse(f"admin:{name}")) for _, title, name in sorted(lines)]
    here = max((href for _, href in found if request.path.startswith(href)), key=len, default=None)
    return [MenuItem(title, href, href == here) for title, href in found]


# Pages


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    title: str,
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
) -> HttpResponse:
    """A page in the frame. `crumbs` stand between Home and the title."""
    whole = {**admin.site.each_context(request), "title": title, "crumbs": crumbs, **context}
    whole["is_nav_sidebar_enabled"] = False  # the menu of screens is enough, and tables need the room
    return TemplateResponse(request, template, whole, status=status)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page that refreshes: a template, what reads its context, and how often (seconds)."""

    template: str
    read: Callable[[], Mapping[str, Any]]
    every_s: float = EVERY_SECONDS


def live_page(
    request: HttpRequest,
    template: str,
    fragments: Mapping[str, Fragment],
    context: Mapping[str, Any],
    **more: Any,
) -> HttpResponse:
    """A page whose fragments stand in its template as `{% live "name" %}`; or one of them, when it is asked for.

    A fragment is only read when it is shown. `more` is what `page` takes.
    """
    asked = request.GET.get(FRAGMENT)
    if asked is not None and asked in fragments:
        response = HttpResponse(render_fragment(request, fragments[asked]))
        response["X-Fragment"] = (
            asked  # a log-in page that a redirect led to has none, and is not shown in its place
        )
        return response
    return page(request, template, {**context, "fragments": fragments}, **more)


def render_fragment(request: HttpRequest, fragment: Fragment) -> SafeString:
    """A fragment's content, with the time of its reading."""
    context = {"as_of": timezone.now(), **fragment.read()}
    return mark_safe(render_to_string(fragment.template, context, request))  # noqa: S308  (a template's output)


# Charts


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; a value may be missing."""

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time, drawn by JavaScript, with the same figures as a table beside it.

    `at` are instants in Unix seconds, rising. `unit` stands at the axis (`s`, `jobs`, `jobs/min`, `%`).
    """

    name: str
    title: str
    at: Sequence[int]
    lines: Sequence[Line]
    unit: str = ""
    is_logarithmic: bool = False
    note: str = ""

    @property
    def figures(self) -> str:
        """What the script draws, as JSON for an attribute: a fragment may hold no script, not even one of data."""
        lines = [{"label": line.label, "values": list(line.values)} for line in self.lines]
        drawn = {"at": list(self.at), "lines": lines, "unit": self.unit, "log": self.is_logarithmic}
        return json.dumps(drawn, allow_nan=False)

    @property
    def rows(self) -> list[tuple[datetime, list[float | None]]]:
        """The table, newest first: an instant and a value a line."""
        instants = [datetime.fromtimestamp(at, UTC) for at in self.at]
        return [
            (instant, [line.values[place] for line in self.lines])
            for place, instant in reversed(list(enumerate(instants)))
        ]


# The home page


@dataclass(slots=True)
class _Home:
    view: View | None = field(default=None)


_home = _Home()


def home(view: View) -> View:
    """Make a function `(request, context) → response` the admin's first page."""
    _home.view = view
    return view


class Site(admin.AdminSite):
    """Django's admin with our screens."""

    def get_urls(self) -> list[Any]:
        return [*urls(self), *super().get_urls()]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if _home.view is None:
            return super().index(request, extra_context)
        return _home.view(request, {"app_list": self.get_app_list(request), **(extra_context or {})})


def environment(request: HttpRequest) -> dict[str, Any]:
    """For every template: which installation this is."""
    return {"environment": settings.ENVIRONMENT}
