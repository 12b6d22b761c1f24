"""Forms of dead letters that operators' and members' pages have in common, checked by the rules of the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

from dlq.api.desk import CORRECTION
from jobqueue.limits import HORIZON, REASON_CHARS_MAX
from jobsplatform import strictjson
from jobsplatform.errors import JobsPlatformError
from jobsplatform.strictjson import Node
from jobsplatform.wording import describe


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
    """A new version of the payload, exactly as it will be stored, or a new reference, and why."""

    payload = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "class": "vLargeTextField json"}),
        help_text="JSON. It is kept digit for digit.",
    )
    payload_ref = forms.CharField(
        required=False, label="Payload reference", help_text="Instead of a payload."
    )
    field_order = ["payload", "payload_ref", "note"]

    def clean(self) -> dict[str, Any]:
        """With `checked`: the correction's values as the API would read them."""
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                cleaned["checked"] = _checked(cleaned)
            except JobsPlatformError as error:
                raise forms.ValidationError(describe(error)) from None
        return cleaned


def _checked(cleaned: Mapping[str, Any]) -> dict[str, Any]:
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
