"""The export of a search: what the list shows, whole, inert, audited; never beyond the asker's tenant."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from jobqueue import exporting, query
from jobqueue.ids import format_id
from jobqueue.types import FLEET, Scope
from jobsplatform.errors import Invalid
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db

HOSTILE = "=cmd|'/c calc'!A1 </script><script>alert(1)</script> \x1b[31m \u202e"


def _export(text: str = "", *, scope: Scope = FLEET, form: str = "csv", **more: Any) -> str:
    pieces = exporting.export(query.parse(text), scope=scope, form=form, actor=cast.OPS, **more)
    return b"".join(pieces).decode()


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_an_export_holds_what_the_search_finds() -> None:
    ids = cast.enqueue_many(7)
    cast.enqueue(kind="other")
    found = _rows(_export("kind:noop"))
    assert [row["job_id"] for row in found] == [format_id(job_id) for job_id in ids[::-1]]
    assert found[0] | {} == found[0] | {
        "tenant": "acme",
        "queue": "default",
        "state": "ready",
        "priority": "2",
    }


def test_pages_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "ROWS_AT_ONCE", 3)
    cast.enqueue_many(10)
    lines = [json.loads(line) for line in _export(form="jsonl").splitlines()]
    assert len({line["job_id"] for line in lines}) == 10


def test_an_export_that_is_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "ROWS_AT_ONCE", 3)
    cast.enqueue_many(10)
    found = _rows(_export(rows_max=5))
    assert len(found) == 6
    assert found[-1]["job_id"].startswith("# cut off after 5 rows")
    with pytest.raises(Invalid):
        _export(rows_max=0)


def test_an_export_is_audited_when_it_begins() -> None:
    exporting.export(
        query.parse("state:dead"), scope=FLEET, form="csv", actor=cast.OPS, reason="for the court"
    )
    entry = cast.read(
        "SELECT actor, reason, details->>'query' FROM tenants_auditentry WHERE action = 'job.export'",
        alias="default",
    )
    assert entry == [(cast.OPS, "for the court", "state:dead")]


def test_hostile_text_is_inert() -> None:
    lease = cast.leased(request_key="=1+1", max_attempts=1)
    cast.fail(lease, now=at(1), message=HOSTILE)
    (row,) = _rows(_export("state:dead"))
    assert row["request_key"] == "'=1+1"
    assert row["error"].startswith("'=cmd")
    assert "\x1b" not in row["error"]
    line = _export("state:dead", form="jsonl")
    assert line.isascii()
    assert json.loads(line)["error"].startswith("=cmd")


def test_a_tenant_exports_its_own_alone() -> None:
    cast.enqueue()
    theirs = cast.enqueue(tenant_id=cast.globex().pk)
    assert [row["job_id"] for row in _rows(_export(scope=cast.mallory()))] == [format_id(theirs)]
    assert _rows(_export("tenant:acme", scope=cast.mallory())) == []
