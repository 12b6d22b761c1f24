"""Kinds of jobs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobqueue import kinds
from jobqueue.admin.queues import words
from jobqueue.models import (
    JobKind,
    KindRow,
)
from jobsplatform.adminsite import (
    NOTHING,
    ModelForm,
    ShardAdmin,
    VerbAdmin,
    actor,
)


class JobKindForm(ModelForm):
    """Settings that stand in the code's stead; each says what the code has."""

    class Meta:
        model = JobKind
        fields = ("name", *kinds.SETTINGS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in kinds.SETTINGS:
            if name in self.fields:
                declared = self.instance.declared.get(name)
                known = "as its code has it" if declared is None else f"as its code has it: {declared}"
                self.fields[name].label = words(name)
                self.fields[name].help_text = f"{self.fields[name].help_text} Empty: {known}."


@admin.register(JobKind)
class JobKindAdmin(VerbAdmin):
    form = JobKindForm
    list_display = ("name", "has_schema", "acts_outside", "tries", "code")
    fieldsets = (
        (None, {"fields": ("name",)}),
        ("Payloads", {"fields": ("payload_schema", "external_effects")}),
        ("Failing", {"fields": ("max_attempts", ("backoff_base_s", "backoff_cap_s"))}),
        ("Where", {"fields": ("queue", "dependency", "cost_hint_s")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else ("name",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # jobs of the kind may wait: emptying its settings is enough

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        wanted = {name: form.cleaned_data[name] for name in form.changed_data if name in kinds.SETTINGS}
        obj.pk = kinds.change(obj.name, wanted, actor=actor(request)).pk
        obj.refresh_from_db()

    @admin.display(description="has a schema", boolean=True)
    def has_schema(self, kind: JobKind) -> bool:
        return bool(kinds.effective(kind)["payload_schema"])

    @admin.display(description="acts outside", boolean=True)
    def acts_outside(self, kind: JobKind) -> bool:
        return bool(kinds.effective(kind)["external_effects"])

    @admin.display(description="max attempts")
    def tries(self, kind: JobKind) -> int | None:
        attempts: int | None = kinds.effective(kind)["max_attempts"]
        return attempts

    @admin.display(description="handler")
    def code(self, kind: JobKind) -> str:
        return kind.declared_by or NOTHING


@admin.register(KindRow)
class KindRowAdmin(ShardAdmin):
    list_display = ("kind", "version", "external_effects", "max_attempts", "dependency")
