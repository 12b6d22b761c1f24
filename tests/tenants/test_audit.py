"""The audit: append-only, and each entry seals the one before it of its tenant and database."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from django.db import DatabaseError, connections, transaction

from tenants import audit
from tests import cast
from tests.cast import OPS, acme, globex

pytestmark = pytest.mark.django_db


class Undone(Exception):
    """The change did not happen after all."""


CHAIN = """
    SELECT id, previous_hash, entry_hash, tenants_audit_hash_v1(
        previous_hash, tenant_id, actor, action, target, reason, details, before_hash, after_hash, request_id, at
    ) AS expected
    FROM tenants_auditentry WHERE tenant_id IS NOT DISTINCT FROM %s ORDER BY id
"""


def _broken(tenant_id: int | None, alias: str = "default") -> list[int]:
    """Entries whose seal, or whose link to the entry before, does not hold."""
    previous, broken = b"", []
    for entry_id, previous_hash, entry_hash, expected in cast.read(CHAIN, [tenant_id], alias=alias):
        if bytes(previous_hash) != previous or bytes(entry_hash) != bytes(expected):
            broken.append(entry_id)
        previous = bytes(entry_hash)
    return broken


def _write(tenant_id: int | None, alias: str = "default", **more: object) -> int:
    return audit.record("test.act", "thing:1", actor=OPS, tenant_id=tenant_id, alias=alias, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("alias", ["default", cast.SHARD])
def test_a_chain_verifies(alias: str) -> None:
    for turn in range(5):
        _write(7, alias, reason=f"turn {turn}", details={"n": turn, "é": ["x", None]}, before_hash=b"a" * 32)
    assert len(cast.read(CHAIN, [7], alias=alias)) == 5
    assert _broken(7, alias) == []


def test_each_tenant_has_its_own_chain() -> None:
    one, other = acme().pk, globex().pk
    for _ in range(3):
        _write(one)
        _write(other)
        _write(None)
    assert [_broken(who) for who in (one, other, None)] == [[], [], []]


@pytest.mark.parametrize(
    "change", ["reason = 'nothing'", "actor = 'user:other'", "details = '{}'", "at = at + '1 us'"]
)
def test_a_tampered_entry_is_named(change: str) -> None:
    """An owner of the database can set the trigger aside; the chain tells."""
    ids = [_write(7, details={"n": 1}) for _ in range(3)]
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditentry DISABLE TRIGGER USER")
        cursor.execute(f"UPDATE tenants_auditentry SET {change} WHERE id = {ids[1]}")
    assert _broken(7) == [ids[1]]


def test_a_removed_entry_is_told_by_the_next() -> None:
    ids = [_write(7) for _ in range(3)]
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditentry DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM tenants_auditentry WHERE id = %s", [ids[1]])
    assert _broken(7) == [ids[2]]


@pytest.mark.parametrize("alias", ["default", cast.SHARD])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tenants_auditentry SET reason = ''",
        "DELETE FROM tenants_auditentry",
        "TRUNCATE tenants_auditentry",
    ],
)
def test_the_audit_only_grows(alias: str, statement: str) -> None:
    _write(7, alias)
    with pytest.raises(DatabaseError) as refused, transaction.atomic(using=alias):
        connections[alias].cursor().execute(statement)
    assert isinstance(refused.value.__cause__, psycopg.errors.InsufficientPrivilege)


def test_an_entry_is_undone_with_its_change() -> None:
    with suppress(Undone), transaction.atomic():
        _write(7)
        raise Undone
    assert cast.read(CHAIN, [7], alias="default") == []


def test_a_chain_goes_on_after_an_entry_that_was_undone() -> None:
    _write(7)
    with suppress(Undone), transaction.atomic():
        _write(7)
        raise Undone
    _write(7)
    assert _broken(7) == []


def test_a_details_text_of_any_kind_is_sealed() -> None:
    _write(7, reason="a\u2028b\n", details={"quote": "\"'\\", "emoji": "😀", "when": cast.at(0)})
    assert _broken(7) == []
