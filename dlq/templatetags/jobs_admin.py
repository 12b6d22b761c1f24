"""What the admin's first page shows of the platform. It stands with the highest app, which sees all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django import template
from django.db import DatabaseError
from django.db.models import Model
from django.urls import reverse

from dlq.models import DeadLetter
from jobqueue.models import Lease, ReadyJob, ScheduledJob
from jobsplatform import database

register = template.Library()

LOOK_AT_MAX: Final = 1_000  # rows of a place and shard: the page costs the same however many jobs there are
PLACES: Final[tuple[tuple[str, str, type[Model]], ...]] = (
    ("running", "Running", Lease),
    ("ready", "Ready", ReadyJob),
    ("scheduled", "Scheduled", ScheduledJob),
    ("dead", "Dead", DeadLetter),
)


@dataclass(frozen=True, slots=True)
class Card:
    """How many jobs stand in one place: exact up to a bound."""

    state: str
    title: str
    number: str
    href: str


@register.simple_tag
def places_now() -> list[Card]:
    """A card for each place where unfinished jobs stand."""
    return [_card(state, title, model) for state, title, model in PLACES]


def _card(state: str, title: str, model: type[Model]) -> Card:
    href = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    try:
        seen = [_seen(model, alias) for alias in database.aliases().values()]
    except DatabaseError:
        return Card(state, title, "?", href)
    more = "+" if any(count > LOOK_AT_MAX for count in seen) else ""
    return Card(state, title, f"{sum(min(count, LOOK_AT_MAX) for count in seen):,}{more}", href)


def _seen(model: type[Model], alias: str) -> int:
    return len(model._default_manager.using(alias).values_list("pk")[: LOOK_AT_MAX + 1])


# The models of the first page, by what people come for; what is not named stands under the last title.
GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Work", ("Job", "ReadyJob", "ScheduledJob", "Lease", "Result")),
    ("Dead letters", ("DeadLetter", "Correction")),
    ("Queues and tenants", ("Queue", "Tenant", "Quota", "ApiToken", "Membership")),
    ("Who did what", ("AuditEntry", "User", "Group")),
)
REST: Final = "Inside the platform"


@register.simple_tag
def in_groups(app_list: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The models of the admin's own list (so: those that the user may see), in groups of ours."""
    models = {model["object_name"]: model for app in app_list for model in app["models"]}
    groups = [(title, [models.pop(name) for name in names if name in models]) for title, names in GROUPS]
    return [(title, found) for title, found in (*groups, (REST, list(models.values()))) if found]
