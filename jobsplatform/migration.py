"""Runs an immutable SQL file as a migration step, on the kind of database that it names."""

from __future__ import annotations

from pathlib import Path

from django.db import migrations


def run_file(migration_file: str, name: str, *, placement: str) -> migrations.RunSQL:
    """`sql/<name>.up.sql` beside the migration, undone by `.down.sql`. A shipped file is never edited."""
    folder = Path(migration_file).parent / "sql"
    return migrations.RunSQL(
        (folder / f"{name}.up.sql").read_text("utf-8"),
        (folder / f"{name}.down.sql").read_text("utf-8"),
        hints={"placement": placement},
    )
