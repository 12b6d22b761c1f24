"""A tenant in the admin: limits beside their use, what a change would do, every version, members, tokens, suspension.

It stands here and not with the tenants because it must know queues and bands. Everything is done by the verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from jobqueue import quotas
from jobqueue.limits import REASON_CHARS_MAX
from jobqueue.models import Queue
from jobsplatform import frame
from jobsplatform.adminsite import (
    ModelForm,
    ReadOnlyAdmin,
    ReasonForm,
    VerbAdmin,
    actor,
    ago,
    ask_and_act,
    badge,
    require,
)
from jobsplatform.errors import JobsPlatformError
from jobsplatform.wording import describe
from tenants import access, members, registry
from tenants.measures import Place
from tenants.members import Role
from tenants.models import AuditEntry, Membership, Quota, QuotaVersion, Tenant

MAY_LIMIT: Final = "tenants.change_quota"
MAY_SEE_LIMITS: Final = "tenants.view_quota"
MAY_MEMBERS: Final = "tenants.change_membership"
MAY_SEE_MEMBERS: Final = "tenants.view_membership"
MAY_TOKENS: Final = "tenants.change_apitoken"
MAY_SEE_TOKENS: Final = "tenants.view_apitoken"
MAY_SWITCH: Final = "tenants.change_tenant"
AUDIT_SHOWN: Final = 10
SWITCHES: Final[Mapping[str, tuple[Callable[..., None], str, str]]] = {
    "suspend": (
        registry.suspend,
        "Its tokens are refused everywhere within five seconds. What it has stays, and running jobs end.",
        "Suspended",
    ),
    "reinstate": (registry.reinstate, "Its tokens are answered again.", "Reinstated"),
    "pause": (registry.pause, "No more of its jobs start. New ones are still taken in.", "Paused"),
    "resume": (registry.resume, "Its jobs start again.", "Resumed"),
}


class LimitsForm(ModelForm):
    """All limits of one place; empty is no limit."""

    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}),
        max_length=REASON_CHARS_MAX,
        required=False,
        help_text="For the history and the audit.",
    )

    class Meta:
        model = Quota
        fields = registry.LIMITS

    @property
    def limits(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in registry.LIMITS}

    def validate_unique(self) -> None:
        """The verb decides under the tenant's lock."""


class PlaceForm(forms.Form):
    """Where a new limit holds."""

    queue = forms.ChoiceField(required=False)
    band = forms.IntegerField(
        required=False, min_value=0, max_value=99, help_text="A band's index; empty: all bands."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Queue.objects.order_by("name").values_list("name", flat=True)
        self.fields["queue"].choices = [("", "all queues"), *((n, n) for n in names)]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        try:
            quotas.check_place(self.cleaned_data.get("queue", ""), self.cleaned_data.get("band"))
        except JobsPlatformError as error:
            self.add_error("band", describe(error))
        return cleaned

    @property
    def place(self) -> Place:
        return Place(self.cleaned_data["queue"], self.cleaned_data["band"])


class MemberForm(ReasonForm):
    """A user and a role."""

    user = forms.CharField(max_length=150, help_text="Exactly the user's name.")
    role = forms.ChoiceField(
        choices=Role.choices, help_text="Viewers look; operators act; admins make tokens."
    )
    field_order = ["user", "role", "reason"]


class RoleForm(ReasonForm):
    """Another role."""

    role = forms.ChoiceField(choices=Role.choices)
    field_order = ["role", "reason"]


@admin.register(Tenant)
class TenantAdmin(VerbAdmin):
    list_display = ("slug", "name", "state", "weight", "created")
    search_fields = ("slug__startswith",)
    search_help_text = "How its slug begins"
    fields = ("slug", "name")
    actions = None

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        views: Mapping[str, tuple[str, Callable[..., HttpResponse]]] = {
            "quota": ("<int:pk>/quota/", self.quota_view),
            "place": ("<int:pk>/quota/new/", self.place_view),
            "revert": ("<int:pk>/quota/<int:number>/revert/", self.revert_view),
            "member_add": ("<int:pk>/members/add/", self.member_add_view),
            "member": ("<int:pk>/members/<int:member>/", self.member_view),
            "member_remove": ("<int:pk>/members/<int:member>/remove/", self.member_remove_view),
            "switch": ("<int:pk>/<slug:verb>/", self.switch_view),
        }
        own = [
            path(route, wrap(view), name=f"tenants_tenant_{name}") for name, (route, view) in views.items()
        ]
        base = super().get_urls()
        return [*own[:-1], *base[:-1], own[-1], base[-1]]  # a word of Django's own pages is no verb of ours

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.pk = registry.create_tenant(obj.slug, name=obj.name, actor=actor(request)).pk
        obj.refresh_from_db()

    @admin.display
    def state(self, tenant: Tenant) -> SafeString:
        return badge(_state(tenant))

    @admin.display
    def created(self, tenant: Tenant) -> SafeString | str:
        return ago(tenant.created_at)

    # The page

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Everything about one tenant; nothing on it is edited in place."""
        if not self.has_view_permission(request):
            require(request, "tenants.view_tenant")
        tenant = self._tenant(object_id)
        context = {
            "tenant": tenant,
            "state": badge(_state(tenant)),
            "has": {
                name: request.user.has_perm(permission)
                for name, permission in {
                    "limit": MAY_LIMIT,
                    "members": MAY_MEMBERS,
                    "tokens": MAY_TOKENS,
                    "switch": MAY_SWITCH,
                }.items()
            },
            **_limits(request, tenant),
            **_people(request, tenant),
            "entries": _entries(request, tenant),
        }
        return frame.page(
            request, "admin/tenants/page.html", context, title=tenant.slug, crumbs=[("Tenants", _list())]
        )

    def _tenant(self, pk: int | str) -> Tenant:
        found = Tenant.objects.filter(pk=pk).first() if str(pk).isdecimal() else None
        if found is None:
            raise Http404
        return found

    # Limits

    def place_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Where a new limit is to hold."""
        require(request, MAY_LIMIT)
        tenant = self._tenant(pk)
        form = PlaceForm(request.GET if "queue" in request.GET else None)
        if form.is_bound and form.is_valid():
            return HttpResponseRedirect(_quota_url(tenant, form.place))
        context = {"form": form, "back": _own(tenant), "submit": "Go on", "method": "get"}
        return self._page(request, "admin/tenants/form.html", context, tenant, "New limits")

    def quota_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Limits of one place: first what they would do, then they are stored."""
        require(request, MAY_LIMIT)
        tenant = self._tenant(pk)
        place_form = PlaceForm({"queue": request.GET.get("queue", ""), "band": request.GET.get("band", "")})
        if not place_form.is_valid():
            raise Http404
        place = place_form.place
        quota = Quota.objects.filter(tenant=tenant, queue=place.queue, band=place.band).first()
        quota = quota or Quota(tenant=tenant, queue=place.queue, band=place.band)
        form = LimitsForm(request.POST or None, instance=quota)
        effects: list[str] | None = None
        if form.is_bound and form.is_valid():
            if "save" in request.POST and request.POST.get("seen") == quotas.told(form.limits):
                try:
                    self._store(request, tenant, place, form)
                    return HttpResponseRedirect(_own(tenant))
                except JobsPlatformError as error:
                    form.add_error(None, describe(error))
            else:
                would = quotas.effects(tenant.slug, form.limits, queue=place.queue, band=place.band)
                effects = would or ["Nothing would change."]
        context = {
            "form": form,
            "where": quotas.where(place),
            "back": _own(tenant),
            "effects": effects,
            "seen": quotas.told(form.limits) if effects is not None else "",
        }
        title = f"Limits in {quotas.where(place)}"
        return self._page(request, "admin/tenants/limits.html", context, tenant, title)

    def _store(self, request: HttpRequest, tenant: Tenant, place: Place, form: LimitsForm) -> None:
        quota = registry.set_quota(
            tenant.slug,
            form.limits,
            queue=place.queue,
            band=place.band,
            actor=actor(request),
            reason=form.cleaned_data["reason"],
        )
        said = f"Limits in {quotas.where(place)}: {quotas.told(registry.limits_of(quota))}."
        self.log_change(request, tenant, said)
        messages.success(request, said)

    def revert_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        """Ask, then make a version hold again; what that would do stands above the button."""
        require(request, MAY_LIMIT)
        tenant = self._tenant(pk)
        version = QuotaVersion.objects.filter(tenant=tenant, number=number).first()
        if version is None:
            raise Http404
        place = Place(version.queue, version.band)

        def act(said: Mapping[str, Any]) -> str:
            registry.revert_quota(tenant.slug, number, actor=actor(request), reason=said["reason"])
            return f"Limits in {quotas.where(place)} are as in version {number} again: {quotas.told(version.limits)}."

        effects = quotas.effects(tenant.slug, version.limits, queue=version.queue, band=version.band)
        would = " ".join(effects) or "They are so already."
        return ask_and_act(
            request,
            self,
            obj=tenant,
            title=f"Go back to version {number}",
            intro=f"Limits in {quotas.where(place)}: {quotas.told(version.limits)}. {would}",
            form=ReasonForm(request.POST or None),
            act=act,
            back=_own(tenant),
            submit="Go back to it",
        )

    # Members

    def member_add_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask for a user and a role."""
        require(request, MAY_MEMBERS)
        tenant = self._tenant(pk)

        def act(said: Mapping[str, Any]) -> str:
            made = members.set_member(
                tenant.slug, said["user"], said["role"], actor=actor(request), reason=said["reason"]
            )
            return f"{made.user} is {made.role} of {tenant.slug}."

        intro = "Members see the tenant's own pages. Who is a member already gets the new role."
        return self._ask(request, tenant, "Add a member", intro, MemberForm(request.POST or None), act, "Add")

    def member_view(self, request: HttpRequest, pk: int, member: int) -> HttpResponse:
        """Ask for another role."""
        require(request, MAY_MEMBERS)
        tenant, held = self._member(pk, member)

        def act(said: Mapping[str, Any]) -> str:
            members.set_member(
                tenant.slug,
                held.user.get_username(),
                said["role"],
                actor=actor(request),
                reason=said["reason"],
            )
            return f"{held.user} is {said['role']} of {tenant.slug}."

        form = RoleForm(request.POST or None, initial={"role": held.role})
        title = f"Role of {held.user}"
        return self._ask(request, tenant, title, "It holds from the next request on.", form, act, "Change")

    def member_remove_view(self, request: HttpRequest, pk: int, member: int) -> HttpResponse:
        """Ask, then put a member out."""
        require(request, MAY_MEMBERS)
        tenant, held = self._member(pk, member)
        username = held.user.get_username()

        def act(said: Mapping[str, Any]) -> str:
            members.remove_member(tenant.slug, username, actor=actor(request), reason=said["reason"])
            return f"{username} is no member of {tenant.slug} any more."

        intro = "The tenant's pages are closed to them from the next request on. Tokens that they made stay."
        form = ReasonForm(request.POST or None)
        return self._ask(request, tenant, f"Remove {username}", intro, form, act, "Remove")

    def _member(self, pk: int, member: int) -> tuple[Tenant, Membership]:
        tenant = self._tenant(pk)
        held = Membership.objects.select_related("user").filter(tenant=tenant, pk=member).first()
        if held is None:
            raise Http404
        return tenant, held

    # Suspension

    def switch_view(self, request: HttpRequest, pk: int, verb: str) -> HttpResponse:
        """Ask why, then suspend, reinstate, pause or resume."""
        require(request, MAY_SWITCH)
        tenant = self._tenant(pk)
        if verb not in SWITCHES:
            raise Http404
        change, intro, done = SWITCHES[verb]

        def act(said: Mapping[str, Any]) -> str:
            change(tenant.slug, actor=actor(request), reason=said["reason"])
            return f"{done}: {tenant.slug}."

        form = ReasonForm(request.POST or None)
        return self._ask(
            request, tenant, f"{verb.capitalize()} {tenant.slug}", intro, form, act, verb.capitalize()
        )

    def _ask(
        self,
        request: HttpRequest,
        tenant: Tenant,
        title: str,
        intro: str,
        form: forms.Form,
        act: Callable[[Mapping[str, Any]], str],
        submit: str,
    ) -> HttpResponse:
        return ask_and_act(
            request,
            self,
            obj=tenant,
            title=title,
            intro=intro,
            form=form,
            act=act,
            back=_own(tenant),
            submit=submit,
        )

    def _page(
        self, request: HttpRequest, template: str, context: Mapping[str, Any], tenant: Tenant, title: str
    ) -> HttpResponse:
        crumbs = [("Tenants", _list()), (tenant.slug, _own(tenant))]
        return frame.page(request, template, context, title=title, crumbs=crumbs)


def _state(tenant: Tenant) -> str:
    return "suspended" if tenant.is_suspended else "paused" if tenant.is_paused else "active"


def _list() -> str:
    return reverse("admin:tenants_tenant_changelist")


def _own(tenant: Tenant) -> str:
    return reverse("admin:tenants_tenant_change", args=[tenant.pk])


def _quota_url(tenant: Tenant, place: Place) -> str:
    band = "" if place.band is None else f"&band={place.band}"
    return f"{reverse('admin:tenants_tenant_quota', args=[tenant.pk])}?queue={place.queue}{band}"


# What the page shows, as far as who asks may see it


def _limits(request: HttpRequest, tenant: Tenant) -> dict[str, Any]:
    if not request.user.has_perm(MAY_SEE_LIMITS):
        return {"lines": None}
    versions = registry.quota_history(tenant.slug)
    newest: dict[Place, int] = {}
    for version in versions:
        newest.setdefault(Place(version.queue, version.band), version.number)
    return {
        "lines": [(line, _quota_url(tenant, line.place)) for line in quotas.lines(tenant.pk)],
        "versions": [
            {
                "row": version,
                "where": quotas.where(Place(version.queue, version.band)),
                "told": quotas.told(version.limits),
                "holds": newest[Place(version.queue, version.band)] == version.number,
            }
            for version in versions
        ],
        "queue_full": quotas.turned_away_by_queues(tenant.pk),
    }


def _people(request: HttpRequest, tenant: Tenant) -> dict[str, Any]:
    return {
        "people": members.members_of(tenant) if request.user.has_perm(MAY_SEE_MEMBERS) else None,
        "tokens": access.live_tokens(tenant) if request.user.has_perm(MAY_SEE_TOKENS) else None,
    }


def _entries(request: HttpRequest, tenant: Tenant) -> list[AuditEntry] | None:
    """What was done to the tenant lately, from the control database."""
    if not request.user.has_perm("tenants.view_auditentry"):
        return None
    return list(AuditEntry.objects.filter(tenant_id=tenant.pk).order_by("-id")[:AUDIT_SHOWN])


# Lists beside it, whose rows lead to the tenant


@admin.register(Quota)
class QuotaAdmin(ReadOnlyAdmin):
    """Every limit there is; they are changed on the tenant's page, which shows what a change would do."""

    list_display = ("tenant", "scope", *registry.LIMITS)
    list_select_related = ("tenant",)

    def url_of(self, row: Quota) -> str | None:
        return _own(row.tenant)

    @admin.display(description="where")
    def scope(self, quota: Quota) -> str:
        return quotas.where(Place(quota.queue, quota.band))


@admin.register(Membership)
class MembershipAdmin(ReadOnlyAdmin):
    list_display = ("user", "tenant", "role")
    list_select_related = ("user", "tenant")

    def url_of(self, row: Membership) -> str | None:
        return _own(row.tenant)
