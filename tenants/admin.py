"""Tenants, members and tokens (edited by verbs), and the audit (read-only)."""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from jobsplatform import scopes
from jobsplatform.adminsite import NOTHING, KeysetAdmin, ModelForm, ShardAdmin, VerbAdmin, actor, ago, badge
from jobsplatform.strictjson import Node
from jobsplatform.wording import describe
from tenants import access, logins, registry
from tenants.api.tokens import NEW_TOKEN
from tenants.models import ApiToken, AuditEntry, Membership, Tenant, TenantState

TENANTS_SHOWN_MAX: Final = 100  # in a filter


class LoginForm(AdminAuthenticationForm):
    """Who guesses passwords has to wait, with the right one too."""

    def clean(self) -> dict[str, Any]:
        name, address = str(self.cleaned_data.get("username", "")), _address(self.request)
        wait_s = logins.attempt(name, address)
        if wait_s:
            minutes = math.ceil(wait_s / 60)
            raise forms.ValidationError(
                f"Too many attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}.",
                code="throttled",
            )
        cleaned: dict[str, Any] = super().clean()
        logins.succeeded(name, address)
        return cleaned


def _address(request: HttpRequest | None) -> str:
    """Where a request comes from; behind our proxy, what the proxy says. IPv6: its network, of which one has many."""
    if request is None:
        return ""
    named = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.HTTPS else ""
    text = named.split(",")[-1].strip() or request.META.get("REMOTE_ADDR", "")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


admin.site.login_form = LoginForm


@admin.register(Tenant)
class TenantAdmin(VerbAdmin):
    list_display = ("slug", "name", "state", "created")
    search_fields = ("slug__startswith",)
    search_help_text = "How its slug begins"
    actions = ("pause", "resume", "suspend", "reinstate")
    fields = ("slug", "name")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (
            ("slug", "name") if obj is None else ("slug", "name", "state", "weight", "version", "created_at")
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else self.get_fields(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.pk = registry.create_tenant(obj.slug, name=obj.name, actor=actor(request)).pk
            obj.refresh_from_db()

    @admin.display
    def state(self, tenant: Tenant) -> SafeString:
        return badge("suspended" if tenant.is_suspended else "paused" if tenant.is_paused else "active")

    @admin.display
    def created(self, tenant: Tenant) -> SafeString | str:
        return ago(tenant.created_at)

    @admin.action(permissions=["change"], description="Pause: start no more jobs")
    def pause(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        self.each(request, queryset, lambda t: registry.pause(t.slug, actor=actor(request)), "Paused")

    @admin.action(permissions=["change"], description="Resume: start jobs again")
    def resume(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        self.each(request, queryset, lambda t: registry.resume(t.slug, actor=actor(request)), "Resumed")

    @admin.action(permissions=["change"], description="Suspend: refuse its API calls")
    def suspend(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        self.each(request, queryset, lambda t: registry.suspend(t.slug, actor=actor(request)), "Suspended")

    @admin.action(permissions=["change"], description="Reinstate: answer its API calls again")
    def reinstate(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        self.each(request, queryset, lambda t: registry.reinstate(t.slug, actor=actor(request)), "Reinstated")


@admin.register(Membership)
class MembershipAdmin(KeysetAdmin):
    list_display = ("user", "tenant", "role")
    list_select_related = ("user", "tenant")
    autocomplete_fields = ("user", "tenant")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_delete_permission(self, request, obj)


# Tokens


class TokenForm(ModelForm):
    """What a token may do."""

    scopes = forms.MultipleChoiceField(
        choices=[(word, word) for word in sorted(scopes.ALL)], widget=forms.CheckboxSelectMultiple
    )
    queues = forms.CharField(required=False, help_text="Names of queues, with commas. Empty: every queue.")

    class Meta:
        model = ApiToken
        fields = ("tenant", "name", "scopes", "queues", "expires_at")

    def clean_queues(self) -> list[str] | None:
        named = [name.strip() for name in self.cleaned_data["queues"].split(",") if name.strip()]
        if not named:
            return None
        node = Node()
        node.update(scopes=[scopes.READ], queues=named)
        refusal = NEW_TOKEN.check(node).refusal
        if refusal is not None:
            raise forms.ValidationError(describe(refusal))
        return named

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError("Is not in the future.")
        return expires_at


@admin.register(ApiToken)
class ApiTokenAdmin(VerbAdmin):
    form = TokenForm
    list_display = ("token", "owner", "name", "may", "state", "last_used")
    list_select_related = ("tenant",)
    search_fields = ("public_id",)
    search_help_text = "The id in the token's text: jp_id_…"
    actions = ("revoke",)
    autocomplete_fields = ("tenant",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A token is never changed: another is made, and this one revoked."""
        return False if obj is not None else super().has_change_permission(request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return ("tenant", "name", "scopes", "queues", "expires_at")
        return (
            "token",
            "owner",
            "name",
            "may",
            "where",
            "state",
            "expires_at",
            "revoked_at",
            "last_used_at",
            "created_at",
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else self.get_fields(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        token, text = access.create_token(
            tenant=obj.tenant,
            scopes=form.cleaned_data["scopes"],
            queues=form.cleaned_data["queues"],
            name=obj.name,
            expires_at=obj.expires_at,
            actor=actor(request),
        )
        obj.pk = token.pk
        obj.refresh_from_db()
        obj.shown_once = text

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The token's text, in this answer alone: a message would lie in a cookie."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": obj,
            "title": "Token made",
            "text": obj.shown_once,
        }
        return TemplateResponse(request, "admin/token_made.html", context)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        word = search_term.strip().removeprefix("jp_").split("_")[0]
        return (queryset.filter(public_id=word) if word else queryset), False

    @admin.action(permissions=["revoke"], description="Revoke: end for good")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        self.each(request, queryset, lambda t: access.revoke_token(t, actor=actor(request)), "Revoked")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tenants.change_apitoken")

    @admin.display
    def token(self, row: ApiToken) -> str:
        return str(row)

    @admin.display(description="tenant")
    def owner(self, row: ApiToken) -> str:
        return "the fleet" if row.tenant is None else row.tenant.slug

    @admin.display(description="scopes")
    def may(self, row: ApiToken) -> str:
        return ", ".join(sorted(row.scopes))

    @admin.display(description="queues")
    def where(self, row: ApiToken) -> str:
        return "every queue" if row.queues is None else ", ".join(row.queues)

    @admin.display
    def state(self, row: ApiToken) -> SafeString:
        if row.revoked_at is not None:
            return badge("revoked")
        return badge(
            "expired" if row.expires_at is not None and row.expires_at <= timezone.now() else "active"
        )

    @admin.display(description="last used")
    def last_used(self, row: ApiToken) -> SafeString | str:
        return ago(row.last_used_at)


# Audit, and what shards were told


class AuditTenantFilter(admin.SimpleListFilter):
    """One tenant's chain."""

    title = parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        tenants = Tenant.objects.order_by("slug").values_list("pk", "slug")
        return [(str(pk), slug) for pk, slug in tenants[:TENANTS_SHOWN_MAX]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(tenant_id=int(value)) if value and value.isdecimal() else queryset


@admin.register(AuditEntry)
class AuditEntryAdmin(ShardAdmin):
    list_display = ("when", "actor", "action", "target", "tenant", "reason")
    list_filter = (*ShardAdmin.list_filter, AuditTenantFilter)
    search_fields = ("target__exact",)
    search_help_text = "A target, such as queue:default, tenant:acme or job:0-42"
    fields = readonly_fields = (
        "at",
        "actor",
        "action",
        "target",
        "tenant",
        "reason",
        "told",
        "request_id",
        "seal",
    )

    def prepare(self, rows: Sequence[Any]) -> None:
        ids = {row.tenant_id for row in rows}
        slugs = dict(Tenant.objects.filter(pk__in=ids).values_list("pk", "slug"))
        for row in rows:
            row.slug = NOTHING if row.tenant_id is None else slugs.get(row.tenant_id, f"#{row.tenant_id}")

    @admin.display
    def when(self, row: AuditEntry) -> SafeString | str:
        return ago(row.at)

    @admin.display
    def tenant(self, row: Any) -> str:
        return str(row.slug)

    @admin.display(description="details")
    def told(self, row: AuditEntry) -> str:
        return json.dumps(row.details, ensure_ascii=False, indent=2)

    @admin.display(description="seal")
    def seal(self, row: AuditEntry) -> str:
        return bytes(row.entry_hash).hex()


@admin.register(TenantState)
class TenantStateAdmin(ShardAdmin):
    list_display = ("tenant_id", "version", "weight", "is_paused", "limits_running")
