"""How queues share their starts, in the admin: every version with who, when, why and since when; a new one, its
roll-out, and the way back. Versions are never edited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from jobqueue import policies
from jobqueue.admin.queue_pages import shown
from jobqueue.models import COST_MODELS, PolicyVersion, Queue
from jobsplatform.adminsite import (
    NOTHING,
    PREVIEW,
    ReadOnlyAdmin,
    ReasonForm,
    actor,
    ago,
    ask_and_act,
    require,
)
from jobsplatform.frame import FRAGMENT, Fragment, live_page

CHANGE: Final = "queue.change_queue"  # the permission
SHARE_HELP: Final = "Of claims, 0 to 1; at 1 it is in force. Each claim draws anew."


class ShareForm(ReasonForm):
    """Which share of claims uses a version."""

    share = forms.FloatField(min_value=0, max_value=1, initial=1, help_text=SHARE_HELP)
    field_order = ["share", "reason"]


class PolicyForm(ShareForm):
    """A new version, from the one in force."""

    cost_model = forms.ChoiceField(
        choices=COST_MODELS, help_text="What tenants share evenly: starts, or seconds of slots."
    )
    reserved_share = forms.FloatField(
        min_value=0, max_value=0.5, help_text="Of starts, kept for bulk bands from strict ones."
    )
    ageing_s = forms.IntegerField(
        min_value=1,
        max_value=604_800,
        required=False,
        label="Ageing (seconds)",
        help_text="A job counts as one band more urgent after each such period. Empty: off.",
    )
    field_order = ["cost_model", "reserved_share", "ageing_s", "share", "reason"]

    def __init__(self, queue: policies.QueuePolicy, data: Mapping[str, Any] | None) -> None:
        known = {name: getattr(queue, name) for name in ("cost_model", "reserved_share", "ageing_s")}
        super().__init__(data, initial=known)
        weighted = [(index, band) for index, band in enumerate(queue.bands) if not band.strict]
        weights = {
            _weight(index): forms.IntegerField(
                min_value=1,
                max_value=policies.WEIGHT_MAX,
                initial=band.weight,
                label=f"Weight of {band.name}",
            )
            for index, band in weighted
        }
        self.fields = {**weights, **self.fields}


def _weight(index: int) -> str:
    return f"weight_{index}"


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    """Newest first. What a row offers depends on whether its version is in force or on trial."""

    list_display = (
        "queue",
        "number",
        "standing",
        "shares",
        "cost_model",
        "actor",
        "reason",
        "since",
        "verbs",
    )
    list_filter = ("queue",)
    list_select_related = ("queue",)
    list_display_links = ("number",)
    fields = readonly_fields = (
        "queue",
        "number",
        "standing",
        "shares",
        "cost_model",
        "reserved_share",
        "ageing_s",
        "actor",
        "reason",
        "created_at",
        "in_force_from",
    )

    def get_urls(self) -> list[URLPattern]:
        views: dict[str, Callable[..., HttpResponse]] = {
            "new": self.new_view,
            "roll-out": self.roll_out_view,
            "return": self.return_view,
        }
        wrap = self.admin_site.admin_view
        own = [
            path(f"<int:queue_id>/{verb}/", wrap(view), name=f"queue_policyversion_{verb.replace('-', '_')}")
            for verb, view in views.items()
        ]
        return [*own, *super().get_urls()]

    # Columns

    @admin.display
    def standing(self, version: PolicyVersion) -> str:
        if version.number == version.queue.policy_number:
            return "in force"
        if version.number == version.queue.trial_number:
            return f"on trial, {version.queue.trial_share:.0%} of claims"
        return "earlier" if version.in_force_from else "only tried"

    @admin.display(description="bands")
    def shares(self, version: PolicyVersion) -> str:
        return ", ".join(
            f"{band['name']} strict" if band.get("strict") else f"{band['name']} ×{band.get('weight', 1)}"
            for band in version.bands
        )

    @admin.display(description="in force from")
    def since(self, version: PolicyVersion) -> SafeString | str:
        return ago(version.in_force_from) if version.in_force_from else NOTHING

    @admin.display(description="")
    def verbs(self, version: PolicyVersion) -> SafeString | str:
        queue = version.queue
        offered: list[tuple[str, str]] = []
        if version.number == queue.trial_number:
            offered = [("roll_out", "Roll out…"), ("return", "Give up…")]
        elif version.number == queue.policy_number:
            offered = [("new", "Change…")] + ([("return", "Return…")] if queue.trial_number is None else [])
        links = (
            (reverse(f"admin:queue_policyversion_{verb}", args=[queue.pk]), words) for verb, words in offered
        )
        return format_html_join(" ", '<a href="{}">{}</a>', links) or NOTHING

    # Pages

    def new_view(self, request: HttpRequest, queue_id: int) -> HttpResponse:
        """The form, and beside it what the weights in it would do: at once with JavaScript, else by its button."""
        queue = self._asked(request, queue_id)
        policy = policies.by_name(queue.name)
        fragments = {PREVIEW: Fragment("admin/queues/preview.html", lambda: _preview(policy, request))}
        if request.GET.get(FRAGMENT) == PREVIEW:
            return live_page(request, "", fragments, {}, title="")

        def act(said: Mapping[str, Any]) -> str:
            bands = [
                band if band.strict else replace(band, weight=said[_weight(index)])
                for index, band in enumerate(policy.bands)
            ]
            wanted = {name: said[name] for name in ("cost_model", "reserved_share", "ageing_s")}
            made = policies.set_policy(
                queue.name,
                {**wanted, "bands": bands},
                share=said["share"],
                actor=actor(request),
                reason=said["reason"],
            )
            return f"Policy {made.number} of {queue.name} is used by {said['share']:.0%} of claims."

        intro = (
            "Makes the next version. With a share below 1 the one in force stays, and this one is on trial."
        )
        form = PolicyForm(policy, request.POST or None)
        extra = {"fragments": fragments, **_preview(policy, request)}
        title = "Change the policy"
        return self._ask(request, queue, title, intro, form, act, "Make the version", extra)

    def roll_out_view(self, request: HttpRequest, queue_id: int) -> HttpResponse:
        queue = self._asked(request, queue_id)

        def act(said: Mapping[str, Any]) -> str:
            made = policies.roll_out(queue.name, said["share"], actor=actor(request), reason=said["reason"])
            return f"Policy {made.number} of {queue.name} is used by {said['share']:.0%} of claims."

        intro = "Lets a share of claims use the version on trial."
        form = ShareForm(request.POST or None, initial={"share": queue.trial_share})
        return self._ask(request, queue, "Roll out", intro, form, act, "Roll it out")

    def return_view(self, request: HttpRequest, queue_id: int) -> HttpResponse:
        queue = self._asked(request, queue_id)

        def act(said: Mapping[str, Any]) -> str:
            made = policies.return_policy(queue.name, actor=actor(request), reason=said["reason"])
            return f"Policy {made.number} of {queue.name} is in force."

        intro = (
            "Gives up the version on trial; without one, what was in force before is in force again at once."
        )
        form = ReasonForm(request.POST or None)
        return self._ask(request, queue, "Return", intro, form, act, "Return to the policy before")

    def _asked(self, request: HttpRequest, queue_id: int) -> Queue:
        require(request, CHANGE)
        queue = Queue.objects.filter(pk=queue_id).first()
        if queue is None:
            raise Http404
        return queue

    def _ask(
        self,
        request: HttpRequest,
        queue: Queue,
        title: str,
        intro: str,
        form: forms.Form,
        act: Callable[[Mapping[str, Any]], str],
        submit: str,
        context: Mapping[str, Any] | None = None,
    ) -> HttpResponse:
        return ask_and_act(
            request,
            self,
            obj=queue,
            title=f"{title}: {queue.name}",
            intro=intro,
            form=form,
            act=act,
            back=reverse("admin:queue", args=[queue.name]),
            submit=submit,
            context=context,
            template="admin/ask_and_act.html" if context is None else "admin/queues/policy.html",
        )


def _preview(policy: policies.QueuePolicy, request: HttpRequest) -> Mapping[str, Any]:
    """What the weights in the form would do; one that is no weight leaves the band as it is."""
    sent = request.POST if request.method == "POST" else request.GET
    weights = {
        index: int(text)
        for index in range(len(policy.bands))
        if (text := sent.get(_weight(index), "")).isdecimal() and 1 <= int(text[:9]) <= policies.WEIGHT_MAX
    }
    return {"preview": shown(policy, weights), "queue": policy}
