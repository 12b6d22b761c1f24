"""The audit's pages: filters, one entry, export, and checking the chains."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from tenants import audit, auditlog
from tenants.auditlog import Filter
from tests import admin_cast, cast
from tests.admin_cast import page

pytestmark = pytest.mark.django_db

AUDIT = "/admin/audit/"


@pytest.fixture(autouse=True)
def _entry() -> None:
    with transaction.atomic():
        audit.record("queue.pause", "queue:mail", actor="user:amy", reason="lunch", before_hash=b"\x01" * 32)
        audit.record("queue.resume", "queue:docs", actor="user:bob", reason="back", tenant_id=cast.acme().pk)


@pytest.mark.parametrize(
    ("query", "shown", "hidden"),
    [
        ("", "lunch", "nothing-hidden"),
        ("?actor=user:amy", "lunch", "back"),
        ("?action=queue.resume", "back", "lunch"),
        ("?action=queue.", "lunch", "nothing-hidden"),
        ("?target=queue:mail", "lunch", "back"),
        ("?tenant=acme", "back", "lunch"),
        ("?tenant=-", "lunch", "back"),
        ("?since=2999-01-01+00:00", "No entry fits", "lunch"),
        ("?tenant=nobody", "There is no such tenant", "lunch"),
        ("?since=yesterday", "Enter a valid date", "lunch"),
        ("?before=x", "no place in a list", "lunch"),
    ],
)
def test_filters_narrow_the_list(query: str, shown: str, hidden: str) -> None:
    text = page(admin_cast.operator(), AUDIT + query)
    assert shown in text
    assert f">{hidden}<" not in text


def test_an_entry_is_shown_whole() -> None:
    (entry,) = auditlog.page(Filter(target="queue:mail"), tenant_id=None, limit=5).rows
    text = page(admin_cast.operator(), reverse("admin:audit_entry", args=[entry.name]))
    assert "01" * 32 in text
    assert entry.entry_hash in text
    assert admin_cast.staff("tenants.view_auditentry").get(f"{AUDIT}entry/default-999999/").status_code == 404


def test_the_chains_are_checked_to_their_end() -> None:
    client = admin_cast.operator()
    text, address = page(client, AUDIT + "verify/"), AUDIT + "verify/?go=1"
    for _ in range(5):
        text = page(client, address)
        if "Every seal holds" in text:
            break
        address = (
            AUDIT + "verify/" + text.split('class="button" href="')[1].split('"')[0].replace("&amp;", "&")
        )
    assert "Every seal holds" in text
    assert client.get(AUDIT + "verify/?go=1&database=nowhere").status_code == 404


def test_the_filter_is_exported_and_that_is_an_entry() -> None:
    response: Any = admin_cast.operator().post(AUDIT + "export/", {"actor": "user:amy", "format": "csv"})
    text = b"".join(response.streaming_content).decode()
    assert "lunch" in text
    assert "back" not in text
    assert cast.audited("audit.export", alias="default") == 1


def test_who_may_only_look_exports_nothing() -> None:
    client = admin_cast.staff("tenants.view_auditentry")
    assert "Export" not in page(client, AUDIT)
    assert client.post(AUDIT + "export/", {"format": "csv"}).status_code == 403
    assert cast.audited("audit.export", alias="default") == 0
