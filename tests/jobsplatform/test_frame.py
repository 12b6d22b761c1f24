"""The frame: vendored files are what they are said to be, fragments are parts of their pages, reports are counted."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobsplatform import events, frame, reports
from jobsplatform.frame import Chart, Line
from jobsplatform.templatetags import frame as tags
from tests import admin_cast

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / "static" / "vendor", ROOT / "tests" / "browser" / "vendor")


@pytest.mark.parametrize("folder", PLACES, ids=["static", "tests"])
def test_vendored_files_are_what_their_list_says(folder: Path) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.M)
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name, _ in rows} == dict(rows)
    kept = {str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.name != "README.md"}
    assert kept == {name for name, _ in rows}
    assert all((folder / name).parent.joinpath("LICENSE").exists() for name, _ in rows)


def test_no_template_holds_a_script_or_a_style() -> None:
    found = [
        path.name
        for path in (ROOT / "templates").rglob("*.html")
        if re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|hx-on|js:", path.read_text())
    ]
    assert found == []


def test_our_stylesheet_stays_one_short_file() -> None:
    assert len((ROOT / "static" / "jobs_admin.css").read_text().splitlines()) <= 300


@pytest.mark.django_db
def test_a_fragment_is_a_part_of_its_page_and_says_so() -> None:
    client, address = admin_cast.operator(), reverse("admin:shards")
    whole, part = client.get(address), client.get(address + "?fragment=shards")
    assert part.headers["X-Fragment"] == "shards"
    assert "<html" not in part.content.decode()
    assert "As of" in part.content.decode()
    assert 'hx-get="?fragment=shards"' in admin_cast.checked(whole)
    assert "X-Fragment" not in client.get(address + "?fragment=nonsense").headers


@pytest.mark.django_db
def test_a_fragment_keeps_the_rest_of_its_page_s_address() -> None:
    text = admin_cast.page(admin_cast.operator(), reverse("admin:queues") + "?after=a")
    assert 'hx-get="?after=a&amp;fragment=queues"' in text


@pytest.mark.django_db
def test_the_environment_is_on_every_page(settings: Any) -> None:
    settings.ENVIRONMENT = "production"
    assert (
        'class="environment environment-production">production<'
        in Client().get("/admin/login/").content.decode()
    )


def test_two_screens_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="queues"):
        frame.screen("elsewhere/", name="queues", title="x", permission=None)(lambda request: None)  # type: ignore[arg-type, return-value]


# Charts


def test_a_chart_has_its_figures_as_a_table() -> None:
    drawing = Chart(
        "c", "Starts <now>", [60, 120], [Line("H", [1, None]), Line("N", [2.5, 3])], unit="a minute"
    )
    assert drawing.rows[0][1] == [None, 3]
    from django.template.loader import render_to_string

    text = render_to_string("frame/chart.html", tags.chart(drawing))
    assert "Starts &lt;now&gt;" in text
    assert text.count("<tr>") == 3
    held = re.search(r'data-chart="([^"]+)"', text)
    assert held is not None
    assert json.loads(held[1].replace("&quot;", '"'))["lines"][0] == {"label": "H", "values": [1, None]}


@pytest.mark.parametrize(("share", "width"), [(0.5, "50.0"), (7, "100.0"), (-1, "0.0")])
def test_a_bar_stays_in_its_place(share: float, width: str) -> None:
    assert f'class="fill" width="{width}"' in tags.bar(share)


def test_a_spark_needs_two_values() -> None:
    assert tags.spark([1]) == ""
    assert 'points="0.0,1.0 100.0,19.0"' in tags.spark([3, None])


# Reports of the policy


@pytest.fixture
def told() -> Any:
    heard: list[tuple[str, dict[str, Any]]] = []
    end = events.subscribe(lambda name, fields: heard.append((name, fields)))
    reports.forget()
    yield heard
    end()


def test_a_report_is_counted_and_told_cut_short(told: list[Any]) -> None:
    body = {
        "csp-report": {
            "violated-directive": "script-src",
            "blocked-uri": "x" * 999,
            "script-sample": "secret",
        }
    }
    answer = Client().post("/csp-report", json.dumps(body), content_type="application/csp-report")
    assert answer.status_code == 204
    assert told == [("csp_violation", {"violated_directive": "script-src", "blocked_uri": "x" * 200})]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"csp-report": 7}', b"\xff" * 99, b"[" * 20_000])
def test_a_report_that_is_none_is_counted_too(told: list[Any], body: bytes) -> None:
    assert Client().post("/csp-report", body, content_type="application/csp-report").status_code == 204
    assert told == [("csp_violation", {})]


def test_many_reports_make_one_line_a_second(told: list[Any]) -> None:
    for _ in range(20):
        Client().post("/csp-report", b"{}", content_type="application/csp-report")
    assert len(told) == 1


def test_reports_are_posted() -> None:
    assert Client().get("/csp-report").status_code == 405


def test_every_page_says_where_reports_go() -> None:
    assert Client().get("/admin/login/").headers["Content-Security-Policy"].endswith("report-uri /csp-report")


# Refusals


@pytest.mark.django_db
def test_what_is_absent_and_what_is_not_allowed_are_pages() -> None:
    absent = admin_cast.operator().get(reverse("admin:queue", args=["nope"]))
    assert (absent.status_code, "There is no such thing here." in admin_cast.checked(absent)) == (404, True)
    refused = admin_cast.staff().get(reverse("admin:queues"))
    assert (refused.status_code, "Not allowed" in admin_cast.checked(refused)) == (403, True)


@pytest.mark.django_db
def test_a_database_that_takes_too_long_is_a_friendly_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def late(*args: object) -> None:
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr("jobqueue.admin.queue_pages._asked", late)
    answer = admin_cast.operator().get(reverse("admin:queue", args=["default"]))
    assert answer.status_code == 503
    assert "took too long" in admin_cast.checked(answer)
    assert "canceling" not in answer.content.decode()
