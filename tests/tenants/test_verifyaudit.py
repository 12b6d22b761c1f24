"""`manage.py verifyaudit`: names what was tampered with, and exits 1."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import connections, transaction

from jobsplatform import sql
from tenants import audit
from tests.cast import OPS, SHARD
from tests.commands_cast import run

pytestmark = pytest.mark.django_db


def _write(tenant_id: int | None = 7, alias: str = "default") -> int:
    return audit.record("test.act", "thing:1", actor=OPS, tenant_id=tenant_id, alias=alias, details={"n": 1})


def _tamper(statement: str, alias: str = "default") -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditentry DISABLE TRIGGER USER")
        cursor.execute(statement)


def test_a_sound_audit_verifies() -> None:
    for turn in range(4):
        _write(tenant_id=[7, 8, None, 7][turn])
        _write(alias=SHARD)
    ran = run("verifyaudit")
    assert (ran.code, ran.out) == (0, f"Every seal holds, in default, {SHARD}.\n")


@pytest.mark.parametrize("alias", ["default", SHARD])
@pytest.mark.parametrize("tenant_id", [7, None])
def test_a_changed_entry_is_named(alias: str, tenant_id: int | None) -> None:
    ids = [_write(tenant_id, alias) for _ in range(3)]
    _tamper(f"UPDATE tenants_auditentry SET reason = 'nothing' WHERE id = {ids[1]}", alias)
    ran = run("verifyaudit")
    assert ran.code == 1
    (line,) = ran.out.splitlines()
    assert line.startswith(f"{alias}-{ids[1]} (test.act thing:1, ")
    assert "the row was changed" in line


def test_a_removed_entry_is_told_by_the_next() -> None:
    ids = [_write() for _ in range(3)]
    _tamper(f"DELETE FROM tenants_auditentry WHERE id = {ids[1]}")
    ran = run("verifyaudit")
    assert ran.code == 1
    assert [line.split()[0] for line in ran.out.splitlines()] == [f"default-{ids[2]}"]


def test_a_changed_entry_with_a_new_seal_is_told_by_the_next() -> None:
    """Who changes a row and reseals it must reseal all that follow."""
    ids = [_write() for _ in range(3)]
    _tamper(
        "UPDATE tenants_auditentry SET reason = 'x', entry_hash = tenants_audit_hash_v1("
        "previous_hash, tenant_id, actor, action, target, 'x', details, before_hash, after_hash, request_id, at)"
        f" WHERE id = {ids[1]}"
    )
    assert run("verifyaudit").out.startswith(f"default-{ids[2]} ")


def test_every_batch_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CHECK_BATCH", 2)
    ids = [_write(tenant_id=turn % 2) for turn in range(7)]
    assert run("verifyaudit").code == 0
    _tamper(f"UPDATE tenants_auditentry SET actor = 'x' WHERE id IN ({ids[1]}, {ids[6]})")
    named = [line.split()[0] for line in run("verifyaudit").out.splitlines()]
    assert named == [f"default-{ids[1]}", f"default-{ids[6]}"]


def test_many_entries_at_once_are_one_chain_with_those_around_them() -> None:
    _write()
    targets = [f"job:0-{n}" for n in range(5)]
    ids = audit.record_many(
        "job.redrive", targets, actor=OPS, tenant_id=7, reason="é", details={"campaign": 1}, alias="default"
    )
    _write()
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT target FROM tenants_auditentry WHERE id = ANY(%s) ORDER BY id", [ids])
        assert [target for (target,) in cursor.fetchall()] == targets
    assert ids == sorted(ids)
    assert run("verifyaudit").code == 0


def test_an_entry_that_was_undone_leaves_no_gap_to_be_told() -> None:
    _write()
    with suppress(ZeroDivisionError), transaction.atomic():
        _write()
        raise ZeroDivisionError
    _write()
    assert run("verifyaudit").code == 0


# Seals


@pytest.mark.parametrize("alias", ["default", SHARD])
def test_an_end_that_was_cut_off_is_told_by_its_seal(alias: str) -> None:
    ids = [_write(7, alias) for _ in range(3)]
    assert audit.seal() > 0
    _tamper(f"DELETE FROM tenants_auditentry WHERE id = {ids[2]}", alias)
    ran = run("verifyaudit")
    assert ran.code == 1
    assert [line.split(":")[0] for line in ran.out.splitlines() if "sealed by" in line] == [
        f"{alias}-{ids[2]}"
    ]


def test_sealed_chains_verify_and_are_sealed_again_only_when_they_grow() -> None:
    _write(7)
    _write(8, SHARD)
    audit.seal()
    assert audit.seal() == 0
    _write(8, SHARD)
    assert audit.seal() == 1
    assert run("verifyaudit").code == 0


def test_many_seals_are_compared_by_few_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, asked = [], []
    for turn in range(40):
        ids.append(_write(turn % 3))
        audit.seal()
    _tamper(f"DELETE FROM tenants_auditentry WHERE id IN ({ids[7]}, {ids[20]})")
    ask = sql.rows

    def noted(name: str, *args: Any, **more: Any) -> list[sql.Row]:
        asked.append(name)
        return ask(name, *args, **more)

    monkeypatch.setattr(sql, "rows", noted)
    found = list(audit.verify_seals())
    assert [missing.entry_id for missing in found] == [ids[7], ids[20]]
    assert len({missing.seal_id for missing in found}) == 2
    assert asked == ["tenants/audit_seals", "tenants/audit_missing", "tenants/audit_seals"]


def test_a_seal_that_is_taken_away_breaks_the_platforms_chain() -> None:
    _write(7)
    audit.seal()
    _write(None)
    _tamper(f"DELETE FROM tenants_auditentry WHERE action = '{audit.SEAL}'")
    assert run("verifyaudit").code == 1
