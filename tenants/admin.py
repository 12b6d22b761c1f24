"""Tenants, members and tokens (edited by verbs), and the audit (read-only)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from jobsplatform.adminsite import (
    NOTHING,
    ModelForm,
    ReasonForm,
    ShardAdmin,
    VerbAdmin,
    actor,
    ago,
    ask_and_act,
    badge,
    require,
)
from tenants import access, doors
from tenants.forms import RotateForm, TokenFields
from tenants.models import ApiToken, AuditEntry, Tenant, TenantState

TENANTS_SHOWN_MAX: Final = 100  # in a filter


admin.site.login_form = doors.StaffLoginForm


# Tokens


class TokenForm(TokenFields, ModelForm):
    """What a token may do."""

    expires_at = forms.DateTimeField(
        required=False, help_text="UTC, such as 2030-01-31 08:00. Empty: until it is ended."
    )

    class Meta:
        model = ApiToken
        fields = ("tenant", "name", "scopes", "queues", "expires_at")

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

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/rotate/", wrap(self.rotate_view), name="tenants_apitoken_rotate"),
            path("<int:pk>/revoke/", wrap(self.revoke_view), name="tenants_apitoken_revoke"),
            *super().get_urls(),
        ]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """The tenant that a link to the form names."""
        asked = request.GET.get("tenant", "")
        return {"tenant": int(asked)} if asked.isdecimal() else {}

    def rotate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask for how long the old secret goes on, then show the new one, in that answer alone."""
        token = self._live(request, pk)
        shown: list[Any] = []

        def act(said: Mapping[str, Any]) -> str:
            held, text = access.rotate_token(
                token, overlap_s=said["overlap_s"] or 0, actor=actor(request), reason=said["reason"]
            )
            held.shown_once = text  # type: ignore[attr-defined]
            shown.append(held)
            return "The token has a new secret."

        intro = "It gets a new secret, shown once. Its id, scopes and queues stay."
        form = RotateForm(request.POST or None)
        answer = self._asked(request, token, f"Rotate {token}", intro, form, "Rotate", act)
        return self.response_add(request, shown[0]) if shown else answer

    def revoke_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask, then end a token."""
        token = self._live(request, pk)

        def act(said: Mapping[str, Any]) -> str:
            access.revoke_token(token, actor=actor(request), reason=said["reason"])
            return f"{token} is ended."

        intro = "It ends for good, in every process within five seconds."
        form = ReasonForm(request.POST or None)
        return self._asked(request, token, f"Revoke {token}", intro, form, "Revoke", act)

    def _asked(
        self,
        request: HttpRequest,
        token: ApiToken,
        title: str,
        intro: str,
        form: forms.Form,
        submit: str,
        act: Callable[[Mapping[str, Any]], str],
    ) -> HttpResponse:
        if token.tenant is None or not request.user.has_perm("tenants.view_tenant"):
            back = reverse("admin:tenants_apitoken_changelist")
        else:
            back = reverse("admin:tenants_tenant_change", args=[token.tenant.pk])
        return ask_and_act(
            request,
            self,
            obj=token,
            title=title,
            intro=intro,
            form=form,
            act=act,
            back=back,
            submit=submit,
        )

    def _live(self, request: HttpRequest, pk: int) -> ApiToken:
        require(request, "tenants.change_apitoken")
        token = ApiToken.objects.select_related("tenant").filter(pk=pk, revoked_at=None).first()
        if token is None:
            raise Http404
        return token

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
