"""Forms of tokens that operators' and members' pages have in common, checked by the rules of the API."""

from __future__ import annotations

from django import forms

from jobsplatform import scopes
from jobsplatform.adminsite import ReasonForm
from jobsplatform.errors import Invalid
from jobsplatform.strictjson import Node
from jobsplatform.wording import describe
from tenants import access
from tenants.api.tokens import NEW_TOKEN


class TokenFields(forms.Form):
    """What a token may do, and where."""

    scopes = forms.MultipleChoiceField(
        choices=[(word, word) for word in sorted(scopes.ALL)], widget=forms.CheckboxSelectMultiple
    )
    queues = forms.CharField(required=False, help_text="Names of queues, with commas. Empty: every queue.")

    def clean_queues(self) -> list[str] | None:
        named = [name.strip() for name in self.cleaned_data["queues"].split(",") if name.strip()]
        if not named:
            return None
        node = Node()
        node.update(scopes=[scopes.READ], queues=named)
        refusal = NEW_TOKEN.check(node).refusal
        if refusal is not None:
            raise forms.ValidationError(describe(refusal))
        try:
            access.check_queues(named)
        except Invalid as error:
            raise forms.ValidationError(error.detail) from None
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
