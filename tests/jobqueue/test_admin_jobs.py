"""The jobs' pages: the query bar and its chips, a job with its history, what may be done with it, exports, reveals."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.urls import reverse

from jobqueue import upkeep
from jobqueue.admin.jobs import job_url
from jobqueue.ids import format_id
from jobsplatform.errors import StaleGeneration
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import at

pytestmark = pytest.mark.django_db

JOBS = "/admin/queue/job/"
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'> {{7*7}} {% now %} =1+1 "
    "\x1b[2J \u202egnp.exe"
)


def _names(text: str) -> list[str]:
    return re.findall(r'<th scope="row"><a [^>]*>([^<]+)<', text)


def _page_url(verb: str, job_id: int) -> str:
    return reverse(f"admin:queue_job_{verb}", args=[format_id(job_id)])


# The list


def test_chips_take_their_condition_away() -> None:
    cast.enqueue(kind="mail")
    other = cast.enqueue()
    client = admin_cast.operator()
    text = page(client, JOBS + "?q=kind:mail+state:ready")
    assert len(_names(text)) == 1
    without = html.unescape(re.findall(r'<a href="(\?[^"]+)" aria-label="Without kind:mail"', text)[0])
    assert without == "?q=state%3Aready"
    assert format_id(other) in _names(page(client, JOBS + without))


def test_a_query_that_cannot_be_read_says_why_and_lists_nothing() -> None:
    cast.enqueue()
    client = admin_cast.operator()
    for query, says in (
        ("state:busy", "state: is one of"),
        ("tenant:nobody", "There is no tenant"),
        ("%00", "control"),
    ):
        text = page(client, JOBS + f"?q={query}")
        assert says in text
        assert _names(text) == []


def test_the_page_says_when_it_searched_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobqueue import search

    monkeypatch.setattr(search, "WINDOW", 60)
    cast.enqueue_many(120)
    text = page(admin_cast.operator(), JOBS + "?q=kind:rare")
    assert "the newest jobs were searched, back to" in text
    assert "Older" in text


def test_the_list_needs_its_permission() -> None:
    assert admin_cast.staff("queue.view_queue").get(JOBS).status_code == 403


# A job


def test_a_job_s_page_tells_its_story() -> None:
    old = cast.leased(lease_s=10, request_key="order-7")
    upkeep.reap(now=at(11))
    new = cast.claim_one(now=at(12), worker="w-3")
    with pytest.raises(StaleGeneration):
        cast.complete(old, now=at(13))
    cast.complete(new, now=at(14), result='"hidden-result"')
    text = page(admin_cast.operator(), job_url(old.job_id))
    assert "Late complete refused" in text
    assert "generation 2" in text
    assert "order-7" in text
    assert "hidden-result" not in text
    assert text.count("<li class") >= 6


@pytest.mark.parametrize(
    ("state", "verbs"),
    [
        ("ready", {"Cancel…"}),
        ("scheduled", {"Cancel…", "Retry now…"}),
        ("running", {"Cancel…"}),
        ("succeeded", set()),
        ("dead", {"Redrive…", "Correct…", "Dead letter"}),
    ],
)
def test_only_what_is_legal_now_is_offered(state: str, verbs: set[str]) -> None:
    if state == "dead":
        job_id = cast.buried()
    elif state in ("ready", "scheduled"):
        job_id = cast.enqueue(delay_s=60 if state == "scheduled" else None)
    else:
        lease = cast.leased()
        job_id = lease.job_id
        if state == "succeeded":
            cast.complete(lease, now=at(1))
    text = page(admin_cast.operator(), job_url(job_id))
    assert set(re.findall(r'<a class="button" href="[^"]+">([^<]+)</a>', text)) == verbs


def test_a_waiting_job_is_started_now_with_a_reason() -> None:
    client, job_id = admin_cast.operator(), cast.enqueue(now=None, delay_s=600)
    page(client, _page_url("retry", job_id))
    assert client.post(_page_url("retry", job_id), {"reason": "they wait"}).status_code == 302
    assert cast.place(job_id) == "readyjob"
    assert cast.audited("job.retry_now") == 1
    assert "does not wait" in admin_cast.checked(client.post(_page_url("retry", job_id), {"reason": "again"}))


def test_who_may_only_look_gets_no_verbs() -> None:
    client, job_id = admin_cast.staff("queue.view_job"), cast.enqueue(delay_s=60, payload='"secret-text"')
    text = page(client, job_url(job_id))
    assert 'class="button"' not in text
    assert "Reveal" not in text
    for verb in ("cancel", "retry", "reveal"):
        assert client.post(_page_url(verb, job_id), {"reason": "x", "what": "payload"}).status_code == 403
    assert client.post(JOBS + "export/", {"format": "csv"}).status_code == 403
    assert cast.place(job_id) == "scheduledjob"


# Reveals


def test_a_payload_is_shown_for_a_reason_and_that_is_audited() -> None:
    client, job_id = admin_cast.operator(), cast.enqueue(payload='{"card": "4711"}')
    asked = page(client, _page_url("reveal", job_id))
    assert "4711" not in asked
    assert "4711" not in admin_cast.checked(client.post(_page_url("reveal", job_id), {"reason": " "}))
    assert cast.audited("job.payload_shown") == 0
    assert "4711" in admin_cast.checked(
        client.post(_page_url("reveal", job_id), {"reason": "the customer asks"})
    )
    entry = cast.read("SELECT actor, reason FROM tenants_auditentry WHERE action = 'job.payload_shown'")
    assert entry == [("user:ops", "the customer asks")]


def test_a_result_is_shown_the_same_way() -> None:
    lease = cast.leased()
    cast.complete(lease, now=at(1), result='"hidden-result"')
    client = admin_cast.operator()
    address = _page_url("reveal", lease.job_id)
    assert "hidden-result" not in page(client, address + "?what=result")
    assert "hidden-result" in admin_cast.checked(client.post(address, {"reason": "r", "what": "result"}))
    assert cast.audited("job.payload_shown") == 1


@pytest.mark.parametrize("name", ["0-999", "7-1", "x"])
def test_what_is_not_there_is_not_revealed(name: str) -> None:
    assert admin_cast.operator().post(f"{JOBS}{name}/reveal/", {"reason": "r"}).status_code == 404


# Export


def _streamed(response: Any) -> str:
    return b"".join(response.streaming_content).decode()


@pytest.mark.parametrize(("form", "media"), [("csv", "text/csv"), ("jsonl", "application/x-ndjson")])
def test_a_search_is_exported_as_a_file(form: str, media: str) -> None:
    mine = cast.enqueue(kind="mail")
    other = cast.enqueue()
    response = admin_cast.operator().post(JOBS + "export/", {"q": "kind:mail", "format": form})
    assert response.headers["Content-Type"].startswith(media)
    assert "attachment" in response.headers["Content-Disposition"]
    text = _streamed(response)
    assert format_id(mine) in text
    assert format_id(other) not in text
    assert cast.audited("job.export", alias="default") == 1


def test_an_export_is_asked_for_by_post_and_refused_with_a_message() -> None:
    client = admin_cast.operator()
    assert client.get(JOBS + "export/").status_code == 405
    for wrong in ({"q": "nonsense", "format": "csv"}, {"q": "", "format": "xls"}):
        assert client.post(JOBS + "export/", wrong).status_code == 302
    assert cast.audited("job.export", alias="default") == 0


# Hostile text


@pytest.fixture
def hostile() -> int:
    """A dead letter whose every free text is hostile, and long."""
    lease = cast.leased(
        payload='{"a": "<script>alert(3)</script>"}', request_key="=cmd '<b>x</b>", max_attempts=1
    )
    cast.fail(lease, now=at(1), error_class="permanent", message=HOSTILE + "A" * 1_000_000)
    cast.correct(lease.job_id, note=HOSTILE)
    return lease.job_id


class _Reader(HTMLParser):
    """Collects what a browser would run."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        is_script = tag == "script" and not (names.get("src") or "").startswith(("/static/", "/admin/"))
        if is_script and names.get("type") != "application/json":
            self.active.append(f"<{tag} {attrs}>")
        self.active += [f"{tag} {name}" for name in names if name.startswith("on") or name == "style"]
        self.active += [f"{tag} src={names['src']}" for _ in [0] if tag == "img" and names.get("src") == "x"]


def _inert(text: str) -> None:
    """Nothing of what was stored is markup, and no character of it moves a cursor or turns the text around."""
    reader = _Reader()
    reader.feed(text)
    assert reader.active == []
    assert not {"\x1b", "\u202e"} & set(text)


@pytest.mark.parametrize(
    "address",
    [
        JOBS,
        JOBS + "?q=state:dead",
        JOBS + "?q=" + "%3Cscript%3Ealert(1)%3C/script%3E",
        "job",
        "letter",
        "/admin/dlq/deadletter/",
        "/admin/dlq/deadletter/groups/",
        "group",
        "correct",
        "/admin/audit/",
        "/admin/audit/?actor=%3Cscript%3Ealert(1)",
        "/admin/dead-letters/redrive/?step=report&reason=invalid",
    ],
)
def test_hostile_text_is_inert_on_every_page(hostile: int, address: str) -> None:
    client = admin_cast.operator()
    known = {
        "job": job_url(hostile),
        "letter": reverse("admin:dlq_deadletter_change", args=[format_id(hostile)]),
        "correct": reverse("admin:dlq_deadletter_correct", args=[format_id(hostile)]) + "?present",
        "group": reverse(
            "admin:dlq_deadletter_group", args=[cast.row("dlq_deadletter", hostile)["fingerprint"]]
        ),
    }
    response = client.get(known.get(address, address), follow=True)
    assert response.status_code == 200
    text = response.content.decode()
    _inert(text)
    assert len(text) < 200_000


def test_hostile_payloads_are_inert_where_they_are_revealed(hostile: int) -> None:
    client = admin_cast.operator()
    text = client.post(_page_url("reveal", hostile), {"reason": HOSTILE}).content.decode()
    assert "fixed" in text
    _inert(text)
    address = reverse("admin:dlq_deadletter_correct", args=[format_id(hostile)])
    form = {
        "note": "n",
        "payload": '{"a": "<img src=x onerror=alert(2)>"}',
        "payload_ref": "",
        "action": "check",
    }
    text = client.post(address, form).content.decode()
    assert "What changes" in text
    _inert(text)
