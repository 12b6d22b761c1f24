"""Looking through the audit: by actor, act, target, tenant and time; exports; checking the chains in steps."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from django.db import connections, transaction

from jobsplatform.errors import NotFound
from tenants import audit, auditlog
from tenants.auditlog import Entry, Filter
from tests import cast
from tests.cast import SHARD

pytestmark = pytest.mark.django_db


def _entries() -> None:
    acme, globex = cast.acme().pk, cast.globex().pk
    with transaction.atomic(), transaction.atomic(using=SHARD):
        audit.record("queue.pause", "queue:default", actor="user:ops", reason="lunch")
        for n in range(3):
            audit.record("job.redrive", f"job:0-{n + 1}", actor="user:amy", tenant_id=acme, alias=SHARD)
        audit.record("job.cancel", "job:0-1", actor="user:ops", tenant_id=acme, alias=SHARD)
        audit.record("job.cancel", "job:0-9", actor="user:ops", tenant_id=globex, alias=SHARD)


def _found(wanted: Filter, tenant_id: int | None = None, limit: int = 50) -> list[Entry]:
    return auditlog.page(wanted, tenant_id=tenant_id, limit=limit).rows


def test_entries_of_all_databases_are_one_list() -> None:
    _entries()
    found = _found(Filter())
    assert {entry.alias for entry in found} == {"default", SHARD}
    assert [entry.at for entry in found] == sorted((entry.at for entry in found), reverse=True)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(actor="user:amy"), 3),
        (Filter(action="job.cancel"), 2),
        (Filter(action="job."), 5),
        (Filter(action="job"), 0),
        (Filter(target="job:0-1"), 2),
        (Filter(target="job:0-1", action="job.cancel"), 1),
        (Filter(action="job.cancel", actor="user:amy"), 0),
        (Filter(actor="user:nobody"), 0),
    ],
)
def test_filters_narrow(wanted: Filter, count: int) -> None:
    _entries()
    assert len(_found(wanted)) == count


def test_a_tenants_chain_and_the_platforms() -> None:
    _entries()
    assert len(_found(Filter(tenant_id=cast.acme().pk, action="job."))) == 4
    assert {entry.tenant_id for entry in _found(Filter(is_platform=True))} == {None}


def test_time_bounds_are_kept() -> None:
    _entries()
    newest = _found(Filter())[0].at
    assert _found(Filter(since=newest + timedelta(seconds=1))) == []
    assert _found(Filter(until=newest - timedelta(days=1))) == []
    assert _found(Filter(since=newest - timedelta(hours=1), action="queue.pause")) != []


def test_pages_join_without_gap_or_repeat() -> None:
    _entries()
    whole = [entry.name for entry in _found(Filter())]
    seen: list[str] = []
    place = None
    while True:
        page = auditlog.page(Filter(), tenant_id=None, before=place, limit=2)
        seen += [entry.name for entry in page.rows]
        if page.following is None:
            break
        place = page.following
    assert seen == whole


def test_a_window_ends_a_search_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _entries()
    monkeypatch.setattr(auditlog, "WINDOW", 3)
    page = auditlog.page(Filter(actor="user:nobody"), tenant_id=None, limit=2)
    assert (page.rows, page.searched_back_to is None) == ([], False)


def test_a_tenant_sees_its_own_entries_whatever_it_asks() -> None:
    _entries()
    acme, globex = cast.acme().pk, cast.globex().pk
    assert {entry.tenant_id for entry in _found(Filter(), acme)} == {acme}
    assert _found(Filter(tenant_id=globex), acme) == []
    assert _found(Filter(is_platform=True), acme) == []
    assert [entry.target for entry in _found(Filter(target="job:0-9"), acme)] == []
    theirs = _found(Filter(target="job:0-9"))[0]
    with pytest.raises(NotFound):
        auditlog.entry(theirs.name, tenant_id=acme)
    assert auditlog.entry(theirs.name, tenant_id=globex).target == "job:0-9"


@pytest.mark.parametrize(
    "name", ["", "default", "default-", "default-x", "nowhere-1", "default-999999", "default-²"]
)
def test_an_entry_that_there_is_not(name: str) -> None:
    with pytest.raises(NotFound):
        auditlog.entry(name, tenant_id=None)


def test_an_export_is_whole_inert_and_an_entry_itself() -> None:
    with transaction.atomic():
        audit.record("queue.pause", "queue:x", actor="user:=1+1", reason="=cmd|'/c calc'!A1\x1b")
    pieces = auditlog.export(Filter(action="queue.pause"), tenant_id=None, form="csv", actor="user:ops")
    rows = list(csv.DictReader(io.StringIO(b"".join(pieces).decode(), newline="")))
    assert [row["reason"] for row in rows] == ["'=cmd|'/c calc'!A1\\u001b"]
    assert cast.audited("audit.export", alias="default") == 1


def test_checking_goes_through_every_database_in_steps() -> None:
    _entries()
    step = auditlog.check_step()
    walked = [step.alias]
    while step.alias is not None:
        step = auditlog.check_step(step.alias, step.above)
        walked.append(step.alias)
        assert step.broken == []
    assert walked[-1] is None
    with pytest.raises(NotFound):
        auditlog.check_step("nowhere")


def test_checking_names_what_was_tampered_with() -> None:
    _entries()
    with connections[SHARD].cursor() as cursor:
        cursor.execute("ALTER TABLE tenants_auditentry DISABLE TRIGGER USER")
        cursor.execute("UPDATE tenants_auditentry SET actor = 'user:mallory' WHERE target = 'job:0-2'")
        cursor.execute("ALTER TABLE tenants_auditentry ENABLE TRIGGER USER")
    step = auditlog.check_step(SHARD)
    assert len(step.broken) == 1
    assert "job:0-2" in step.broken[0]
