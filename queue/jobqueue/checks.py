"""System checks of the queue: mistakes that would only show under load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register

from jobqueue import hooks


@register()
def dead_letters_have_a_keeper(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Without an app that takes dead letters a failing job could not leave the schedule."""
    if hooks.has_quarantine():
        return []
    return [Error("No app keeps dead letters.", hint="Add 'dlq' to INSTALLED_APPS.", id="queue.E001")]
