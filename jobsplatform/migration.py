"""Steps of migrations: an immutable SQL file on the kind of database that it names; permissions of shipped groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from django.apps import apps as live_apps
from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def run_file(migration_file: str, name: str, *, placement: str) -> migrations.RunSQL:
    """`sql/<name>.up.sql` beside the migration, undone by `.down.sql`. A shipped file is never edited."""
    folder = Path(migration_file).parent / "sql"
    return migrations.RunSQL(
        (folder / f"{name}.up.sql").read_text("utf-8"),
        (folder / f"{name}.down.sql").read_text("utf-8"),
        hints={"placement": placement},
    )


def grant(rights: Mapping[str, Sequence[str]]) -> migrations.RunPython:
    """Give groups (made where they are missing) permissions `app_label.codename`, once: what an operator takes away
    from a group later stays away. Undone, the permissions are taken away, and groups that have none left are removed.
    """

    def give(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
        grant_now(rights)

    def take(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
        from django.contrib.auth.models import Group

        for name, permissions in rights.items():
            for group in Group.objects.filter(name=name):
                group.permissions.through._default_manager.filter(
                    group=group, permission__in=_found(permissions)
                ).delete()
                if not group.permissions.exists():
                    group.delete()

    return migrations.RunPython(give, take)


def grant_now(rights: Mapping[str, Sequence[str]]) -> None:
    """What `grant` does."""
    from django.contrib.auth.models import Group

    for label in sorted({name.split(".")[0] for names in rights.values() for name in names}):
        # Django makes them after all migrations; a group needs them now.
        create_permissions(live_apps.get_app_config(label), verbosity=0)
    for name, permissions in rights.items():
        group, _ = Group.objects.get_or_create(name=name)
        through = group.permissions.through
        rows = [through(group_id=group.pk, permission_id=pk) for pk in _found(permissions)]
        through._default_manager.bulk_create(rows, ignore_conflicts=True)


def _found(names: Sequence[str]) -> list[int]:
    """The ids of permissions. Raises LookupError naming what there is not."""
    from django.contrib.auth.models import Permission

    rows = Permission.objects.filter(content_type__app_label__in={name.split(".")[0] for name in names})
    known = {
        f"{label}.{code}": pk
        for pk, label, code in rows.values_list("pk", "content_type__app_label", "codename")
    }
    missing = [name for name in names if name not in known]
    if missing:
        raise LookupError(f"no such permission: {', '.join(missing)}")
    return [known[name] for name in names]
