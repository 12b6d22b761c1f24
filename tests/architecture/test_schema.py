"""The schema: as the models say, with names that people gave, numbers that do not run out, and a way back."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connections

from jobqueue.models import Ticket
from jobsplatform.database import BOTH, CONTROL, SHARD, placement
from tests import cast

APPS = ("tenants", "queue", "dlq")
DATABASES = ("default", cast.SHARD)
MODELS = [model for app in APPS for model in apps.get_app_config(app).get_models()]
OURS = re.compile(r"^(queue|dlq|tenants)_")


@pytest.mark.django_db
def test_the_migrations_say_what_the_models_say() -> None:
    call_command("makemigrations", check=True, dry_run=True, stdout=StringIO())


@pytest.mark.django_db
@pytest.mark.parametrize("alias", DATABASES)
def test_each_table_is_where_its_model_belongs(alias: str) -> None:
    here = {name for name in connections[alias].introspection.table_names() if OURS.match(name)}
    wanted = {CONTROL, BOTH} if alias == "default" else {SHARD, BOTH}
    assert here == {model._meta.db_table for model in MODELS if placement(model) in wanted}


@pytest.mark.django_db
@pytest.mark.parametrize("alias", DATABASES)
def test_no_sequence_of_ours_can_run_out(alias: str) -> None:
    """S130."""
    sequences = cast.read("SELECT sequencename, data_type::text FROM pg_sequences", alias=alias)
    ours = {name: kind for name, kind in sequences if OURS.match(name)}
    assert ours
    assert set(ours.values()) == {"bigint"}


@pytest.mark.django_db
@pytest.mark.parametrize("alias", DATABASES)
def test_every_column_that_holds_an_id_is_wide_enough(alias: str) -> None:
    columns = cast.read(
        "SELECT table_name || '.' || column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' AND (column_name = 'id' OR column_name LIKE '%%\\_id')"
        " AND table_name ~ '^(queue|dlq|tenants)_'",
        alias=alias,
    )
    narrow = {name for name, kind in columns if kind not in ("bigint", "character varying")}
    assert columns
    assert narrow <= {
        "tenants_membership.user_id",
        "tenants_authenticator.user_id",
        "tenants_auditentry.request_id",
    }


def test_indexes_and_constraints_have_names_that_people_gave() -> None:
    names = [named.name for model in MODELS for named in (*model._meta.indexes, *model._meta.constraints)]
    assert len(names) > 20
    assert len(set(names)) == len(names)
    assert [name for name in names if re.search(r"_[0-9a-f]{6,8}(_|$)", name)] == []


@pytest.mark.django_db
def test_places_have_no_foreign_keys() -> None:
    """A hot path never locks a parent's row."""
    assert cast.read("SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'f'") == []


@pytest.mark.django_db
def test_every_place_holds_a_job_once() -> None:
    keys = cast.read(
        "SELECT c.conrelid::regclass::text, a.attname FROM pg_constraint c"
        " JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey)"
        " WHERE c.contype = 'p' AND array_length(c.conkey, 1) = 1"
    )
    for table in cast.PLACES:
        assert (table, "job_id") in keys


def test_the_ticket_is_the_same_in_every_place() -> None:
    ticket = {field.name for field in Ticket._meta.get_fields()}
    places = [model for model in MODELS if issubclass(model, Ticket)]
    assert len(places) == 4
    assert all(ticket <= {field.name for field in place._meta.get_fields()} for place in places)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement", ["UPDATE queue_job SET kind = 'x'", "UPDATE queue_lease SET generation = generation + 1"]
)
def test_the_database_itself_keeps_intents_and_fences(statement: str) -> None:
    from django.db import DatabaseError, transaction

    cast.leased()
    with pytest.raises(DatabaseError), transaction.atomic(using=cast.SHARD):
        connections[cast.SHARD].cursor().execute(statement)


@pytest.mark.django_db
def test_hot_tables_are_vacuumed_by_count() -> None:
    for table in ("queue_readyjob", "queue_scheduledjob", "queue_lease", "queue_lanedelta"):
        ((options,),) = cast.read("SELECT reloptions FROM pg_class WHERE relname = %s", [table])
        assert "autovacuum_vacuum_scale_factor=0" in options


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("alias", DATABASES)
def test_every_migration_can_be_undone_and_done_again(alias: str) -> None:
    before = _schema(alias)
    try:
        for app in reversed(APPS):
            call_command("migrate", app, "zero", database=alias, verbosity=0)
        left = [name for name in connections[alias].introspection.table_names() if OURS.match(name)]
        functions = cast.read(
            "SELECT proname FROM pg_proc WHERE proname ~ '^(queue|dlq|tenants)_'", alias=alias
        )
        assert (left, functions) == ([], [])
    finally:
        call_command("migrate", database=alias, verbosity=0)
    assert _schema(alias) == before


def _schema(alias: str) -> list[tuple[object, ...]]:
    columns = cast.read(
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY 1, 2",
        alias=alias,
    )
    constraints = cast.read(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
        alias=alias,
    )
    indexes = cast.read(
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2",
        alias=alias,
    )
    options = cast.read(
        "SELECT relname, reloptions::text FROM pg_class WHERE reloptions IS NOT NULL ORDER BY 1", alias=alias
    )
    triggers = cast.read(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2",
        alias=alias,
    )
    return [*columns, *constraints, *indexes, *options, *triggers]
