"""What members see and do on their tenant's pages; and that nothing of another tenant is on any of them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobqueue import upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.ids import format_id
from jobqueue.models import DepthMinute, DepthRound, Job
from tenants import access, members, registry
from tenants.models import ApiToken, AuditEntry
from tests import cast
from tests.admin_cast import checked
from tests.cast import OPS, SHARD, acme, globex
from tests.portal.test_matrix import PAGES, things_of
from tests.portal_cast import client_of, sent, text_of

pytestmark = pytest.mark.django_db

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>=cmd|'/c'!A1"


def admin() -> object:
    return client_of("ann", of="acme", role="admin")


# Isolation


def numbers(text: str) -> str:
    """A page without what changes from look to look."""
    for changing in (
        r'name="csrfmiddlewaretoken" value="[^"]*"',
        r'name="redrive_key" value="[^"]*"',
        r"<time [^>]*>[^<]*</time>",
        r"[0-9.]+ (s|min|h)\b",
        r"between [0-9:]+ and [0-9:]+",
    ):
        text = re.sub(changing, "", text)
    return text


def sampled_anew(instant: datetime) -> None:
    """Only what waits at that instant has been sampled."""
    DepthMinute.objects.using(SHARD).all().delete()
    DepthRound.objects.using(SHARD).all().delete()
    upkeep.sample_depths(now=instant)


def test_no_page_changes_with_what_another_tenant_does() -> None:
    """Not by a rank, a count, a position or a warning: globex does everything, and acme's pages stay as they are."""
    own = things_of("acme")
    registry.set_quota("acme", {"max_depth": 10, "weight": 2}, actor=OPS)
    client = client_of("ann", of="acme", role="admin")
    addresses = [own.address(name) for name in PAGES if name != "progress"]
    instant = timezone.now()
    upkeep.fold()
    upkeep.sample_usage()
    sampled_anew(instant)
    before = {address: numbers(text_of(client, address)) for address in addresses}
    things_of("globex")
    registry.set_quota("globex", {"max_depth": 200}, actor=OPS)
    enqueue_jobs([cast.new_job(tenant_id=globex().pk, priority=0)] * 80, now=cast.BEGINNING)
    cast.enqueue_many(30, tenant_id=globex().pk, queue=cast.queue("secret-queue"))
    cast.claim("secret-queue", limit=10)
    access.create_token(tenant=globex(), scopes=["read"], name="globex-token", actor=OPS)
    client_of("gil", of="globex", role="admin")
    upkeep.fold()
    upkeep.sample_usage()
    sampled_anew(instant)
    for address in addresses:
        text = numbers(text_of(client, address))
        assert text == before[address], address
        for word in ("globex", "secret-queue", "gil"):
            assert word not in text, address


def test_no_query_reaches_anothers_job() -> None:
    theirs = things_of("globex")
    client = client_of("ann", of="acme", role="admin")
    for query in ("", theirs.job, f"id:{theirs.dead}", "kind:globex-kind", "state:dead", "error:boom"):
        text = text_of(client, f"/t/acme/jobs/?q={query}")
        assert '<th scope="row">' not in text, query
        assert "No job fits" in text or "None among those" in text, query
    text = text_of(client, "/t/acme/jobs/?q=tenant:globex", 400)
    assert "There is no field" in text
    assert text_of(client, "/t/acme/jobs/?q=tenant:nobody", 400).count("globex") == 0


# Acting


def test_a_job_is_found_looked_at_and_cancelled() -> None:
    name = format_id(cast.enqueue(kind="resize", request_key="order-1", now=None))
    client = client_of("ann", of="acme", role="operator")
    assert name in text_of(client, "/t/acme/jobs/?q=key:order-1")
    text = text_of(client, f"/t/acme/jobs/{name}/")
    assert "order-1" in text
    assert "Cancel…" in text
    assert "is cancelled" in sent(client, f"/t/acme/jobs/{name}/cancel/", reason="not wanted")
    entry = AuditEntry.objects.using(SHARD).get(action="job.cancel")
    assert (entry.actor, entry.reason, entry.tenant_id) == ("user:ann", "not wanted", acme().pk)
    assert "Cancel…" not in text_of(client, f"/t/acme/jobs/{name}/")


def test_a_payload_is_shown_on_asking_and_that_is_told() -> None:
    name = format_id(cast.enqueue(payload='{"card": "4711"}', now=None))
    client = client_of("ann", of="acme", role="operator")
    assert "4711" not in text_of(client, f"/t/acme/jobs/{name}/")
    assert "4711" not in text_of(client, f"/t/acme/jobs/{name}/payload/")
    assert not cast.audited("job.payload_shown")
    assert "4711" in checked(client.post(f"/t/acme/jobs/{name}/payload/", {"reason": "a complaint"}))
    entry = AuditEntry.objects.using(SHARD).get(action="job.payload_shown")
    assert (entry.actor, entry.reason) == ("user:ann", "a complaint")


def test_a_dead_letter_is_corrected_and_goes_back_under_its_id() -> None:
    job_id = cast.buried(error_class="permanent", payload='{"month": 13}')
    name = format_id(job_id)
    client = client_of("ann", of="acme", role="operator")
    text = text_of(client, f"/t/acme/dead/{name}/")
    assert "must be corrected" in text
    assert "Redrive…" not in text
    refused = checked(client.post(f"/t/acme/dead/{name}/redrive/", {"note": "again", "redrive_key": "k"}))
    assert "corrected" in refused
    for wrong in ({"payload": "{", "note": "x"}, {"payload": "{}", "note": ""}, {"payload": "", "note": "x"}):
        text = checked(client.post(f"/t/acme/dead/{name}/correct/", wrong))
        assert "errorlist" in text or "errornote" in text
    assert "Version 1" in sent(client, f"/t/acme/dead/{name}/correct/", payload='{"month": 12}', note="typo")
    done = sent(client, f"/t/acme/dead/{name}/redrive/", note="the month is right", redrive_key="k2")
    assert "again, for the 1st time" in done
    assert cast.place(job_id) == "readyjob"
    assert AuditEntry.objects.using(SHARD).filter(actor="user:ann").count() >= 2


def test_all_of_one_error_go_back_in_a_campaign() -> None:
    early = timezone.now() - timedelta(minutes=10)  # a campaign takes what had died before it was made
    ids = cast.graveyard(3, now=early)
    cast.graveyard(2, now=early, tenant_id=globex().pk)
    client = client_of("ann", of="acme", role="operator")
    listed = text_of(client, "/t/acme/dead/")
    link = re.search(r'href="\?error=([0-9a-f]+)"', listed)
    assert link is not None
    text = text_of(client, f"/t/acme/dead/redrive/?error={link[1]}")
    assert "3 dead letters have this error" in text
    response = client.post(
        f"/t/acme/dead/redrive/?error={link[1]}", {"note": "it is back", "rate_per_s": "100"}
    )
    address = response.headers["Location"]
    assert "it is back" in text_of(client, address)
    assert client.post(address, {"verb": "pause"}).status_code == 302
    assert "paused" in text_of(client, address)
    assert client.post(address, {"verb": "sudo"}).status_code == 404
    assert len(ids) == 3


def test_schedules_are_switched_and_run_within_the_tenant() -> None:
    own = things_of("acme")
    client = client_of("ann", of="acme", role="operator")
    assert "every day" in text_of(client, "/t/acme/schedules/").lower() or "03:00" in text_of(
        client, "/t/acme/schedules/"
    )
    assert "is paused" in sent(client, own.address("pause"), reason="holidays")
    assert "goes on" in sent(client, own.address("resume"), reason="")
    jobs = Job.objects.using(SHARD).filter(tenant_id=acme().pk).count()
    assert "was made" in sent(client, own.address("run"), reason="now")
    assert Job.objects.using(SHARD).filter(tenant_id=acme().pk).count() == jobs + 1
    assert AuditEntry.objects.filter(action="schedule.change").earliest("id").actor == "user:ann"


def test_a_tokens_secret_is_in_one_answer_with_the_calls_that_use_it() -> None:
    acme()
    client = client_of("ann", of="acme", role="admin")
    text = checked(
        client.post(
            "/t/acme/tokens/new/", {"name": "app", "scopes": ["produce", "read"], "queues": "default"}
        )
    )
    found = re.search(r"jp_[0-9a-z]{12}_[\w-]{32}", text)
    assert found is not None
    assert f"Bearer {found[0]}" in text
    caller = access.authenticate(f"Bearer {found[0]}")
    assert caller.tenant is not None
    assert (caller.tenant.slug, caller.queue_names) == ("acme", frozenset({"default"}))
    secret = found[0].split("_", 2)[2]
    for name in ("tokens", "start", "overview"):
        assert secret not in text_of(client, f"/t/acme/{'' if name == 'overview' else name + '/'}")
    assert secret not in str(client.cookies)
    public_id = ApiToken.objects.get().public_id
    rotated = checked(client.post(f"/t/acme/tokens/{public_id}/rotate/", {"overlap_s": "0", "reason": "x"}))
    assert secret not in rotated
    assert "is ended" in sent(client, f"/t/acme/tokens/{public_id}/revoke/", reason="over")
    assert {entry.actor for entry in AuditEntry.objects.filter(action__startswith="token.")} == {"user:ann"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": []},
        {"scopes": ["root"]},
        {"queues": "B A D"},
        {"queues": "nowhere"},
        {"expires_in_days": "0"},
    ],
)
def test_a_wrong_token_is_refused_in_the_form(wrong: dict[str, object]) -> None:
    client = client_of("ann", of="acme", role="admin")
    form = {"name": "app", "scopes": ["read"], "queues": "", **wrong}
    assert "errorlist" in checked(client.post("/t/acme/tokens/new/", form))
    assert not ApiToken.objects.exists()


def test_a_limit_that_is_nearly_used_up_is_warned_of_on_the_first_page() -> None:
    acme()
    registry.set_quota("acme", {"max_depth": 10}, actor=OPS)
    client = client_of("ann", of="acme")
    cast.enqueue_many(7, now=None)
    assert "70%" in text_of(client, "/t/acme/limits/")
    assert "near the limit" not in text_of(client, "/t/acme/limits/")
    cast.enqueue(now=None)
    assert "near the limit" in text_of(client, "/t/acme/limits/")
    assert 'class="attention"' in text_of(client, "/t/acme/")


def test_the_snippets_of_the_quick_start_are_calls_that_work() -> None:
    """Those that need no lease are sent as they stand on the page."""
    import html
    import json
    import shlex

    acme()
    client = client_of("ann", of="acme", role="admin")
    text = checked(client.post("/t/acme/tokens/new/", {"scopes": ["produce", "read", "work"]}))
    calls = [html.unescape(found) for found in re.findall(r"<pre[^>]*>(curl .*?)</pre>", text, re.S)]
    assert len(calls) == 4
    words = shlex.split(calls[0].replace("\\\n", " "))
    header = dict(word.split(": ", 1) for word in words if ": " in word and not word.startswith("{"))
    body = next(word for word in words if word.startswith("{"))
    made = client.post(
        words[1].replace("http://testserver", ""),
        body,
        content_type="application/json",
        HTTP_AUTHORIZATION=header["Authorization"],
    )
    assert made.status_code == 201, made.content
    assert json.loads(made.content)["tenant"] == "acme"


# Hostile text


def test_hostile_text_is_inert_on_every_page() -> None:
    tenant = registry.create_tenant("evil", name=HOSTILE, actor=OPS)
    User.objects.create_user("<b>ann")
    members.set_member("evil", "<b>ann", "admin", actor=OPS)
    access.create_token(tenant=tenant, scopes=["read"], name=HOSTILE, actor=OPS)
    lease = cast.leased(tenant_id=tenant.pk, max_attempts=1, payload_ref=HOSTILE, payload=None)
    cast.fail(lease, now=cast.at(1), message=HOSTILE + "\u202e\u0007")
    cast.correct(lease.job_id, note=HOSTILE)
    name = format_id(lease.job_id)
    client = client_of("<b>ann")
    for part in (
        "",
        "jobs/",
        f"jobs/{name}/",
        "dead/",
        f"dead/{name}/",
        "limits/",
        "tokens/",
        "members/",
        "start/",
    ):
        text = client.get(f"/t/evil/{part}").content.decode()
        assert "<script>alert" not in text, part
        assert "<img src=x" not in text, part
        assert "<b>ann" not in text, part
        assert "evil" in text, part
    shown = client.post(f"/t/evil/jobs/{name}/payload/", {"reason": HOSTILE}).content.decode()
    assert "<script>alert" not in shown
    assert "<script>alert" not in client.get("/t/evil/jobs/", {"q": HOSTILE}).content.decode()


# Depth and age over time


def test_depth_and_age_over_time_are_a_chart_and_a_table_by_queue_and_level() -> None:
    now = timezone.now().replace(second=30)
    cast.enqueue_many(3, now=now - timedelta(minutes=10), priority=1)
    cast.enqueue_many(9, now=now - timedelta(minutes=10), priority=1, tenant_id=globex().pk)
    for minutes in (2, 1):
        upkeep.sample_depths(now=now - timedelta(minutes=minutes))
    client = client_of("ann", of="acme")
    text = text_of(client, "/t/acme/")
    depth, age = re.findall(r'data-chart="([^"]+)"', text)[:2]
    assert '"label": "default P1", "values": [3.0, 3.0]' in depth.replace("&quot;", '"')
    assert '"label": "default P1", "values": [480.0, 540.0]' in age.replace("&quot;", '"')
    assert text.count("<td>540</td>") == text.count("<td>480</td>") == 1
    assert '<strong class="chip" aria-current="true">last hour</strong>' in text
    part = text_of(client, "/t/acme/?span=day&fragment=depths")
    assert '<strong class="chip" aria-current="true">last 24 hours</strong>' in part
    assert re.search(r'"values": \[3\.0(, 3\.0)?\]', part.replace("&quot;", '"'))


def test_where_nothing_was_sampled_yet_the_page_says_so() -> None:
    assert "Nothing to draw yet." in text_of(client_of("ann", of="acme"), "/t/acme/?fragment=depths")
