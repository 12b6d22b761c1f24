"""What the admin's first page shows of the platform. It stands with the highest app, which sees all others."""

from __future__ import annotations

from typing import Any, Final

from django import template

register = template.Library()

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
