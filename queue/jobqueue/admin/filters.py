"""Filters of lists, each along an index."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from tenants.models import Tenant

TENANTS_SHOWN_MAX: Final = 100  # in a filter


class TenantFilter(admin.SimpleListFilter):
    """One tenant's rows."""

    title = parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        tenants = Tenant.objects.order_by("slug").values_list("pk", "slug")
        return [(str(pk), slug) for pk, slug in tenants[:TENANTS_SHOWN_MAX]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(tenant_id=int(value)) if value and value.isdecimal() else queryset


def since_filter(field: str, label: str) -> type[admin.SimpleListFilter]:
    """Rows whose instant lies in the last hour, day or week."""

    class Since(admin.SimpleListFilter):
        title = label
        parameter_name = "since"
        hours: ClassVar = {"hour": 1, "day": 24, "week": 168}

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(word, f"in the last {word}") for word in self.hours]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            hours = self.hours.get(self.value() or "")
            if hours is None:
                return queryset
            return queryset.filter(**{f"{field}__gte": timezone.now() - timedelta(hours=hours)})

    return Since


def due_filter(field: str, label: str, past: str, future: str) -> type[admin.SimpleListFilter]:
    """Rows whose instant has passed, or has not."""

    class Due(admin.SimpleListFilter):
        title = label
        parameter_name = "due"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [("past", past), ("future", future)]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            lookup = {"past": "lte", "future": "gt"}.get(self.value() or "")
            return queryset.filter(**{f"{field}__{lookup}": timezone.now()}) if lookup else queryset

    return Due
