"""Tags of the frame: `{% live "name" %}`, `{% chart drawing %}`, `{% bar share %}`, `{% spark values %}`, the menu."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobsplatform import frame, wording
from jobsplatform.frame import FRAGMENT, Chart, MenuItem

register = template.Library()


@register.simple_tag(takes_context=True)
def screens(context: Context) -> list[MenuItem]:
    """The menu of the user who asks."""
    request = context.get("request")
    return [] if request is None or not context.get("has_permission") else frame.menu(request)


@register.inclusion_tag("frame/live.html", takes_context=True)
def live(context: Context, name: str) -> dict[str, Any]:
    """A fragment of a live page, by its name."""
    fragment, request = context["fragments"][name], context["request"]
    query = request.GET.copy()
    query[FRAGMENT] = name
    content = frame.render_fragment(request, fragment)
    return {"name": name, "content": content, "query": query.urlencode(), "every": f"{fragment.every_s:g}"}


@register.inclusion_tag("frame/chart.html")
def chart(drawing: Chart) -> dict[str, Any]:
    """A chart and its table."""
    return {"chart": drawing, "id": f"figures-{drawing.name}"}


@register.simple_tag
def bar(share: float | None, state: str = "") -> SafeString | str:
    """A share (0 to 1) as a bar; the number stands beside it, as text of the page. `state`: ok, warning, bad."""
    if share is None:
        return ""
    width = f"{min(max(share, 0.0), 1.0) * 100:.1f}"
    return format_html(
        '<svg class="bar{}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" width="100" height="8"/><rect class="fill" width="{}" height="8"/></svg>',
        f" bar-{state}" if state else "",
        width,
    )


@register.simple_tag
def spark(values: Sequence[float | None]) -> SafeString | str:
    """A course of values as a small line, without a scale; the newest stands beside it, as text of the page."""
    known = [value or 0.0 for value in values]
    if len(known) < 2:
        return ""
    top = max(known) or 1.0
    points = " ".join(
        f"{100 * place / (len(known) - 1):.1f},{19 - 18 * value / top:.1f}"
        for place, value in enumerate(known)
    )
    return format_html(
        '<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
        '<polyline points="{}"/></svg>',
        points,
    )


@register.filter
def span(seconds: float | None) -> str:
    """A length of time in words."""
    return "–" if seconds is None else wording.span(seconds)


@register.filter
def percent(share: float | None) -> str:
    """A share (0 to 1) in per cent."""
    return "–" if share is None else f"{share:.0%}"


@register.filter
def ago(instant: datetime | None) -> SafeString | str:
    """How long ago that was."""
    if instant is None:
        return "–"
    exact = instant.isoformat(sep=" ", timespec="seconds")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', instant.isoformat(), exact, wording.age(instant)
    )
