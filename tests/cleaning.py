"""Empties the databases behind a test that commits: each is again as the migrations left it.

`flush` would truncate every table and run what follows a migration, which takes half a second. Nearly all tables are
empty, and the others have a few rows: one DELETE takes those, and what the migrations put in comes back from copies.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

COPIES: Final = "kept"  # the schema of the copies
BYTES_MAX: Final = (
    4 * 1024 * 1024
)  # of a table that is deleted from: a larger one is truncated, its garbage too
REFUSES: Final = (
    "tenants_auditentry"  # takes no DELETE and no TRUNCATE: owners alone may set its trigger aside
)

TABLES: Final = """
    SELECT relname, pg_relation_size(t.oid), to_regclass(%s || '.' || relname) IS NOT NULL FROM pg_class t
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'django_migrations'
"""
COLUMNS: Final = """
    SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
DIFFERENCE: Final = "(SELECT to_jsonb(t) FROM {0} t EXCEPT ALL SELECT to_jsonb(t) FROM {1} t)"


class Table(NamedTuple):
    name: str
    size: int
    """bytes"""
    has_copy: bool


def remember(alias: str) -> None:
    """Copy what a database that was just migrated holds."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {COPIES} CASCADE; CREATE SCHEMA {COPIES}")
        for name in _having_rows(cursor, _tables(cursor)):
            cursor.execute(f"CREATE TABLE {COPIES}.{name} AS TABLE {name}")


def clean(alias: str) -> None:
    """Remove what was added since, and bring back what was changed or removed."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        tables = _tables(cursor)
        added = _having_rows(cursor, [table for table in tables if not table.has_copy])
        changed = _differing(cursor, [table for table in tables if table.has_copy])
        large = {table.name for table in tables if table.size > BYTES_MAX}
        _empty(cursor, added + changed, truncate=not large.isdisjoint(added + changed))
        _bring_back(cursor, [table.name for table in tables if table.has_copy])


def _tables(cursor: CursorWrapper) -> list[Table]:
    cursor.execute(TABLES, [COPIES])
    return [Table(*row) for row in cursor.fetchall()]


def _having_rows(cursor: CursorWrapper, tables: list[Table]) -> list[str]:
    return _names(cursor, [f"SELECT '{name}' WHERE EXISTS (SELECT FROM {name})" for name, *_ in tables])


def _differing(cursor: CursorWrapper, tables: list[Table]) -> list[str]:
    """Those that are not equal to their copies."""
    questions = []
    for name, *_ in tables:
        copy = f"{COPIES}.{name}"
        ways = f"{DIFFERENCE.format(name, copy)} UNION ALL {DIFFERENCE.format(copy, name)}"
        questions.append(f"SELECT '{name}' WHERE EXISTS ({ways})")
    return _names(cursor, questions)


def _names(cursor: CursorWrapper, questions: list[str]) -> list[str]:
    if not questions:
        return []
    cursor.execute(" UNION ALL ".join(questions))
    return [name for (name,) in cursor.fetchall()]


def _empty(cursor: CursorWrapper, names: list[str], *, truncate: bool) -> None:
    """In one statement, at whose end the references are checked; a TRUNCATE takes tables that refer to these along."""
    if not names:
        return
    if truncate:
        statement = f"TRUNCATE {', '.join(names)} CASCADE"
    else:
        parts = ", ".join(f"of_{name} AS (DELETE FROM {name})" for name in names)
        statement = f"WITH {parts} SELECT"
    if truncate or REFUSES in names:
        audit = f"ALTER TABLE {REFUSES}"
        statement = f"{audit} DISABLE TRIGGER USER; {statement}; {audit} ENABLE TRIGGER USER"
    cursor.execute(statement)


def _bring_back(cursor: CursorWrapper, names: list[str]) -> None:
    """Fill those that are empty now from their copies."""
    for name in names:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {name})")
        if not cursor.fetchone()[0]:
            cursor.execute(COLUMNS, [f"{COPIES}.{name}"])
            (columns,) = cursor.fetchone()
            cursor.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {COPIES}.{name}")
