"""Audits who may do what: changes of groups, permissions, powers and memberships, whoever makes them.

These rows are Django's own and are changed by its admin, its commands and shells: so they are heard of by signals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import models, transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from jobsplatform import acting
from tenants import audit
from tenants.models import Membership

ACTION: Final = "permission.change"
POWERS: Final = ("is_active", "is_staff", "is_superuser")
_VERBS: Final[Mapping[str, str]] = {
    "post_add": "added",
    "post_remove": "removed",
    "pre_clear": "cleared",
}


def listen() -> None:
    """Connect the signals; called once, when the apps are ready."""
    user = get_user_model()
    m2m_changed.connect(_rights_changed, sender=user.groups.through, dispatch_uid="audit.user_groups")
    m2m_changed.connect(
        _rights_changed, sender=user.user_permissions.through, dispatch_uid="audit.user_permissions"
    )
    m2m_changed.connect(
        _rights_changed, sender=Group.permissions.through, dispatch_uid="audit.group_permissions"
    )
    pre_save.connect(_before_user, sender=user, dispatch_uid="audit.before_user")
    post_save.connect(_after_user, sender=user, dispatch_uid="audit.after_user")
    post_delete.connect(_holder_deleted, sender=user, dispatch_uid="audit.user_deleted")
    post_delete.connect(_holder_deleted, sender=Group, dispatch_uid="audit.group_deleted")
    post_save.connect(_member_saved, sender=Membership, dispatch_uid="audit.member_saved")
    post_delete.connect(_member_deleted, sender=Membership, dispatch_uid="audit.member_deleted")


def _rights_changed(
    instance: models.Model, action: str, model: type[models.Model], pk_set: set[Any] | None, **_: Any
) -> None:
    if action not in _VERBS or (action != "pre_clear" and not pk_set):
        return
    found = model._default_manager.filter(pk__in=pk_set or ()) if action != "pre_clear" else None
    names = ["all"] if found is None else sorted(str(row) for row in found)
    kind = str(model._meta.verbose_name_plural)
    _record(_target(instance), {"what": kind, _VERBS[action]: names})


def _before_user(instance: Any, raw: bool = False, **_: Any) -> None:
    """Remember what powers a user had, for what is told after the row is saved."""
    held = None if raw or instance.pk is None else type(instance)._default_manager.filter(pk=instance.pk)
    instance._powers_before = None if held is None else held.values(*POWERS).first()


def _after_user(instance: Any, raw: bool = False, **_: Any) -> None:
    if raw:
        return
    before = instance._powers_before or {"is_active": True, "is_staff": False, "is_superuser": False}
    after = {name: getattr(instance, name) for name in POWERS}
    changed = {name: value for name, value in after.items() if value != before[name]}
    if changed:
        _record(_target(instance), changed)


def _holder_deleted(instance: Any, **_: Any) -> None:
    _record(_target(instance), {"deleted": True})


def _member_saved(instance: Membership, raw: bool = False, **_: Any) -> None:
    if not raw:
        _record(_target(instance.user), {"role": instance.role}, instance.tenant_id)


def _member_deleted(instance: Membership, **_: Any) -> None:
    _record(_target(instance.user), {"role": None}, instance.tenant_id)


def _target(instance: Any) -> str:
    name = instance.name if isinstance(instance, Group) else instance.get_username()
    return f"{'group' if isinstance(instance, Group) else 'user'}:{name}"


def _record(target: str, details: Mapping[str, Any], tenant_id: int | None = None) -> None:
    with transaction.atomic():  # the chain's lock must hold until the entry is there
        audit.record(ACTION, target, actor=acting.present(), tenant_id=tenant_id, details=details)
