"""Tags of pages about jobs: text from outside made visible, events as bars."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobsplatform import exporting
from jobsplatform.adminsite import badge as state_badge
from jobsplatform.adminsite import until as time_until

register = template.Library()

TONES = {"good": "ok", "bad": "bad", "warn": "warning", "plain": ""}


@register.filter
def visible(text: object) -> str:
    """Text from outside, with control characters and marks of direction written out; the template escapes the rest."""
    return exporting.visible(str(text))


@register.filter
def badge(state: str | None) -> SafeString:
    """A state as a word in a colour."""
    return state_badge(state)


@register.filter
def until(instant: datetime | None) -> SafeString | str:
    """How long it is to an instant, or since."""
    return time_until(instant)


@register.filter
def tone(word: str) -> str:
    """The class of an event's tone."""
    return TONES.get(word, "")


@register.simple_tag
def lane_bar(left: int, width: int, tone_word: str, kind: str) -> SafeString:
    """Where an event lies in the whole of a timeline, in thousandths; the words beside it say the same."""
    return format_html(
        '<svg class="bar bar-{} span-{}" viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" width="1000" height="8"/><rect class="fill" x="{}" width="{}" height="8"/></svg>',
        TONES.get(tone_word, "") or "plain",
        kind,
        left,
        width,
    )
