"""Forms of the tenants' pages. What they say is checked by the rules of the API wherever there are some."""

from __future__ import annotations

from django import forms

from dlq.campaigns import RATE_DEFAULT, RATE_MAX
from dlq.forms import NoteForm
from tenants import access
from tenants.forms import TokenFields


class CampaignForm(NoteForm):
    """All dead letters of one error go back, at a pace."""

    rate_per_s = forms.IntegerField(
        min_value=1, max_value=RATE_MAX, initial=RATE_DEFAULT, label="Jobs a second"
    )
    field_order = ["rate_per_s", "note"]


class TokenForm(TokenFields):
    """A new token."""

    name = forms.CharField(required=False, max_length=access.NAME_CHARS_MAX, help_text="For people.")
    expires_in_days = forms.IntegerField(
        required=False, min_value=1, max_value=3_650, help_text="Empty: until it is ended."
    )
    field_order = ["name", "scopes", "queues", "expires_in_days"]
