"""Kinds at the edges: the command, the admin, and a worker's start."""

from __future__ import annotations

import json

import pytest

from jobqueue import kinds
from jobqueue.models import JobKind, KindRow
from jobqueue.worker.registration import Registration
from tests import admin_cast, cast
from tests.cast import OPS, SHARD
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


# The command


def test_kinds_lists_what_is_registered_and_says_so_when_nothing_is() -> None:
    assert "None needs to be" in run("kinds").out
    kinds.change("mail", {"max_attempts": 3, "external_effects": True}, actor=OPS)
    assert run("kinds", "list").out == "mail  external_effects, max_attempts=3\n"


def test_kinds_set_registers_and_show_tells_where_each_setting_comes_from() -> None:
    schema = {"type": "object"}
    ran = run("kinds", "set", "mail", "max_attempts=3", f"payload_schema={json.dumps(schema)}")
    assert ran.code == 0
    shown = {line.split()[0]: line.split()[1:] for line in run("kinds", "show", "mail").out.splitlines()[1:]}
    assert shown["max_attempts"] == ["3", "(operator)"]
    assert shown["backoff_base_s"] == ["–", "(queue)"]
    assert json.loads(KindRow.objects.using(SHARD).get(kind="mail").payload_schema or "") == schema


def test_kinds_refuses_in_one_line() -> None:
    assert "max_attempts" in refused("kinds", "set", "mail", "max_attempts=0")
    assert "payload_schema" in refused("kinds", "set", "mail", 'payload_schema={"type": "nope"}')
    assert "not registered" in refused("kinds", "show", "mail")


def test_kinds_sync_registers_what_installed_handlers_declare() -> None:
    assert "http.call" in run("kinds", "sync").out
    assert JobKind.objects.get(name="http.call").declared == {"external_effects": True}
    assert "0 kinds changed" in run("kinds", "sync").out


# The admin


def test_an_operator_registers_and_changes_a_kind_in_the_admin() -> None:
    client = admin_cast.operator()
    address = "/admin/queue/jobkind/"
    made = client.post(f"{address}add/", {"name": "mail", "max_attempts": "3", "payload_schema": "{}"})
    assert made.status_code == 302
    kind = kinds.by_name("mail")
    admin_cast.page(client, f"{address}{kind.pk}/change/")
    client.post(f"{address}{kind.pk}/change/", {"external_effects": "true", "max_attempts": ""})
    row = KindRow.objects.using(SHARD).get(kind="mail")
    assert (row.external_effects, row.max_attempts) == (True, None)
    assert cast.audited("kind.change", alias="default") == 2


def test_a_bad_schema_is_refused_in_the_admin_and_changes_nothing() -> None:
    client = admin_cast.operator()
    client.post("/admin/queue/jobkind/add/", {"name": "mail", "payload_schema": '{"type": "nope"}'})
    assert not JobKind.objects.exists()


def test_who_may_only_look_changes_no_kind() -> None:
    client = admin_cast.staff("queue.view_jobkind")
    assert client.get("/admin/queue/jobkind/add/").status_code == 403


# A worker's start


def test_a_registration_that_finds_no_database_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobqueue.declarations import Declaration, Declared
    from jobqueue.worker import registry
    from jobsplatform.errors import Unavailable

    monkeypatch.setattr(
        registry, "declared", lambda: {"mail": Declared("app.send", Declaration(max_attempts=3))}
    )
    mine = Registration("w", ["mail"], tidy=lambda: None)
    with monkeypatch.context() as away:
        away.setattr(kinds, "sync", lambda *args, **more: (_ for _ in ()).throw(Unavailable()))
        assert not mine.attempt()
    assert mine.attempt()
    assert kinds.by_name("mail").declared == {"max_attempts": 3}


def test_a_worker_registers_only_kinds_that_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobqueue.declarations import Declaration, Declared
    from jobqueue.worker import registry

    found = {name: Declared(f"app.{name}", Declaration(max_attempts=3)) for name in ("mail", "other")}
    monkeypatch.setattr(registry, "declared", lambda: found)
    assert Registration("w", ["mail"], tidy=lambda: None).attempt()
    assert [kind.name for kind in kinds.listing()] == ["mail"]
