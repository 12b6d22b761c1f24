"""Forms of the tenants' pages. What they say is checked by the rules of the API wherever there are some."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

from dlq.api.desk import CORRECTION
from dlq.campaigns import RATE_DEFAULT, RATE_MAX
from jobqueue.limits import HORIZON, REASON_CHARS_MAX
from jobsplatform import scopes, strictjson
from jobsplatform.errors import JobsPlatformError
from jobsplatform.strictjson import Node
from jobsplatform.wording import describe
from tenants import access
from tenants.api.tokens import NEW_TOKEN

OWN_SCOPES = tuple(sorted(scopes.ALL))


class ReasonForm(forms.Form):
    """Why; it is kept in the audit."""

    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}), max_length=REASON_CHARS_MAX, required=False
    )


class NoteForm(forms.Form):
    """Why: nothing goes back without a note."""

    note = forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), max_length=REASON_CHARS_MAX)


class RedriveForm(NoteForm):
    """How a dead letter goes back. The key makes a form that is sent twice one redrive."""

    redrive_key = forms.CharField(widget=forms.HiddenInput, max_length=255)
    not_before = forms.DateTimeField(
        required=False, help_text="UTC, such as 2030-01-31 08:00. Empty: at once."
    )
    deadline = forms.DateTimeField(required=False, help_text="UTC. Needed when the job's own has passed.")

    def clean_not_before(self) -> datetime | None:
        return self._within_horizon("not_before")

    def clean_deadline(self) -> datetime | None:
        return self._within_horizon("deadline")

    def _within_horizon(self, name: str) -> datetime | None:
        instant: datetime | None = self.cleaned_data[name]
        if instant is not None and instant > timezone.now() + HORIZON:
            raise forms.ValidationError("Lies more than ten years ahead.")
        return instant


class CorrectionForm(NoteForm):
    """A new version of the payload, exactly as it will be stored, or a new reference."""

    payload = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "class": "vLargeTextField json"}),
        help_text="JSON. It is kept digit for digit.",
    )
    payload_ref = forms.CharField(required=False, help_text="Instead of a payload.")
    field_order = ["payload", "payload_ref", "note"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                cleaned["checked"] = _correction(cleaned)
            except JobsPlatformError as error:
                raise forms.ValidationError(describe(error)) from None
        return cleaned


def _correction(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """The correction by the rules of the API. Raises JobsPlatformError."""
    node = Node()
    node["note"] = cleaned["note"]
    if cleaned["payload"].strip():
        node["payload"] = strictjson.raw(cleaned["payload"])
    if cleaned["payload_ref"]:
        node["payload_ref"] = cleaned["payload_ref"]
    checked = CORRECTION.check(node)
    if (refusal := checked.refusal) is not None:
        raise refusal
    return checked.values


class CampaignForm(NoteForm):
    """All dead letters of one error go back, at a pace."""

    rate_per_s = forms.IntegerField(
        min_value=1, max_value=RATE_MAX, initial=RATE_DEFAULT, label="Jobs a second"
    )
    field_order = ["rate_per_s", "note"]


class TokenForm(forms.Form):
    """What a token may do, by the rules of the API."""

    name = forms.CharField(required=False, max_length=access.NAME_CHARS_MAX, help_text="For people.")
    scopes = forms.MultipleChoiceField(
        choices=[(word, word) for word in OWN_SCOPES], widget=forms.CheckboxSelectMultiple
    )
    queues = forms.CharField(required=False, help_text="Names of queues, with commas. Empty: every queue.")
    expires_in_days = forms.IntegerField(
        required=False, min_value=1, max_value=3_650, help_text="Empty: until it is ended."
    )

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


class RotateForm(ReasonForm):
    """How an old secret ends."""

    overlap_s = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=access.OVERLAP_SECONDS_MAX,
        initial=0,
        label="Overlap (seconds)",
        help_text="For how long the old secret goes on; 0: not at all.",
    )
    field_order = ["overlap_s", "reason"]
