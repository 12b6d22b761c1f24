"""Many dead letters at once: the matrix, one error and who looks after it, the wizard, the comparison, the campaign."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from dlq import differing, groups, handling, pacing, report
from dlq.campaigns import CampaignFilter
from dlq.models import Campaign, Handling
from jobqueue import kinds, policies
from jobqueue.types import FLEET, Scope
from jobsplatform.errors import Invalid, NotFound
from tenants import registry
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db

WIZARD = "/admin/dead-letters/redrive/"
LONG_AGO = datetime(2025, 5, 4, tzinfo=UTC)
PLAN = "rate_per_s=100&canary=0&stop_at_failure_share=0.5&note=the+receiver+is+back"


def _print(job_id: int) -> str:
    return str(cast.row("dlq_deadletter", job_id)["fingerprint"])


# Groups


def test_the_matrix_counts_each_error_by_time() -> None:
    first = cast.buried(now=at(0))
    cast.buried(now=at(10))
    cast.buried(now=at(7_300))
    other = cast.buried(now=at(7_300), error_class="permanent")
    prints = [_print(first), _print(other)]
    found = groups.matrix(prints, scope=FLEET, span=timedelta(hours=12), now=at(3 * 3_600))
    assert found.of(prints[0])[-4:] == [0, 2, 0, 1]
    assert found.of(prints[1])[-4:] == [0, 0, 0, 1]
    assert found.of("0" * 16) == [0] * groups.COLUMNS


def test_a_lane_is_counted_up_to_its_cap_and_the_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LANE_CAP", 2)
    ids = cast.graveyard(5)
    found = groups.matrix(
        [_print(ids[0])], scope=cast.scope_of(cast.acme()), span=timedelta(hours=1), now=at(60)
    )
    assert found.of(_print(ids[0]))[-1] == 3
    assert found.cut == {(_print(ids[0]), groups.COLUMNS - 1)}


def test_of_everybody_a_cell_is_counted_up_to_its_cap_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CELL_CAP", 4)
    ids = cast.graveyard(5)
    cast.graveyard(4, now=at(600))
    found = groups.matrix([_print(ids[0])], scope=FLEET, span=timedelta(hours=1), now=at(660))
    assert found.of(_print(ids[0]))[-3:] == [4, 0, 4]
    assert found.cut == {(_print(ids[0]), groups.COLUMNS - 3)}


def test_a_tenant_s_matrix_holds_its_own_alone() -> None:
    mine = cast.buried()
    cast.buried(tenant_id=cast.globex().pk)
    assert (
        sum(
            groups.matrix([_print(mine)], scope=cast.mallory(), span=timedelta(hours=1), now=at(60)).of(
                _print(mine)
            )
        )
        == 1
    )
    assert groups.one(_print(mine), scope=cast.mallory()).count == 1
    assert groups.one(_print(mine), scope=FLEET).count == 2
    with pytest.raises(NotFound):
        groups.one(_print(mine), scope=Scope(tenant_id=cast.tenant("initech").pk))


def test_an_error_s_page_shows_its_extent_and_its_letters() -> None:
    job_id = cast.buried(payload='{"card": "4711"}')
    text = page(admin_cast.operator(), reverse("admin:dlq_deadletter_group", args=[_print(job_id)]))
    assert "boom 17" in text
    assert "4711" not in text
    assert (
        admin_cast.staff("dlq.view_deadletter")
        .get("/admin/dlq/deadletter/groups/0123456789abcdef/")
        .status_code
        == 404
    )


def test_somebody_looks_after_an_error_with_a_note() -> None:
    job_id, client = cast.buried(), admin_cast.operator()
    address = reverse("admin:dlq_deadletter_group", args=[_print(job_id)])
    assert client.post(address, {"assignee": "ops", "note": "mine; smtp was moved"}).status_code == 302
    text = page(client, address)
    assert "mine; smtp was moved" in text
    assert "ops" in page(client, reverse("admin:dlq_deadletter_groups"))
    assert cast.audited("group.assign", alias="default") == 1
    for wrong in ({"assignee": "nobody-here", "note": "x"}, {"assignee": "ops", "note": " "}):
        admin_cast.checked(client.post(address, wrong))
    assert Handling.objects.get().note == "mine; smtp was moved"


def test_who_may_only_look_assigns_nobody() -> None:
    address = reverse("admin:dlq_deadletter_group", args=[_print(cast.buried())])
    assert (
        admin_cast.staff("dlq.view_deadletter").post(address, {"assignee": "", "note": "x"}).status_code
        == 403
    )
    assert not Handling.objects.exists()


@pytest.mark.parametrize(
    "wrong", [{"fingerprint": "x"}, {"note": ""}, {"note": "n" * 2_001}, {"assignee": "ghost"}]
)
def test_a_wrong_assignment_is_refused(wrong: dict[str, str]) -> None:
    asked = {"fingerprint": "0" * 16, "assignee": "", "note": "n", **wrong}
    with pytest.raises(Invalid):
        handling.assign(actor=OPS, **asked)


# The report


def test_the_report_says_who_stays_who_fails_again_and_what_is_paused() -> None:
    cast.queue()
    kinds.change("mail", {"payload_schema": {"type": "object", "required": ["to"]}}, actor=OPS)
    good = cast.buried(kind="noop", now=LONG_AGO)
    cast.buried(kind="noop", error_class="permanent", now=LONG_AGO)
    policies.pause("default", actor=OPS)
    registry.set_quota("acme", {"max_depth": 1}, actor=OPS)
    found = report.report(CampaignFilter(kind="noop"), scope=FLEET)
    assert (found.preview.matches, found.would_go) == (2, 1)
    assert found.preview.would_skip == {"correction_required": 1}
    assert len(found.need_correction) == 1
    assert good not in found.need_correction
    assert any("is paused" in text for text in found.warnings)


def test_the_report_finds_payloads_that_their_schema_refuses_now() -> None:
    job_id = cast.buried(kind="mail", payload='{"from": "a"}', now=LONG_AGO)
    cast.queue()
    kinds.change("mail", {"payload_schema": {"type": "object", "required": ["to"]}}, actor=OPS)
    found = report.report(CampaignFilter(kind="mail"), scope=FLEET)
    assert found.fail_count == 1
    assert [one.job_id for one in found.failing] == [job_id]
    cast.correct(job_id, payload='{"to": "b"}')
    assert report.report(CampaignFilter(kind="mail"), scope=FLEET).fail_count == 0


def test_what_fails_after_the_scope_was_frozen_is_not_part_of_it() -> None:
    cast.graveyard(2, now=LONG_AGO)
    frozen = LONG_AGO + timedelta(minutes=1)
    cast.graveyard(3, now=LONG_AGO + timedelta(minutes=2))
    assert (
        report.report(CampaignFilter(reason="exhausted"), scope=FLEET, frozen_at=frozen).preview.matches == 2
    )
    made = cast.campaign(now=None)
    assert made.first_matches == 5


# The wizard


def _steps(client: Client, scope: str) -> tuple[str, str]:
    """Freeze a scope; the address of its report, and what it shows."""
    response = client.get(f"{WIZARD}?{scope}&step=report")
    assert response.status_code == 302
    address = WIZARD + str(response.headers["Location"])
    return address, page(client, address)


def test_the_wizard_leads_from_a_scope_to_a_campaign() -> None:
    ids = cast.graveyard(3, now=LONG_AGO)
    cast.buried(now=LONG_AGO, error_class="uncertain")
    client = admin_cast.operator()
    page(client, WIZARD)
    address, text = _steps(client, "reason=exhausted")
    assert '<strong id="matches">3</strong>' in text
    for step in ("correction", "pace"):
        page(client, address.replace("step=report", f"step={step}"))
    summary = address.replace("step=report", "step=summary") + "&" + PLAN
    text = page(client, summary)
    assert "redrive 3" in text
    key = re.search(r'name="key" value="([^"]+)"', text)
    assert key is not None
    refused = admin_cast.checked(client.post(summary, {"confirm": "redrive 4", "key": key[1]}))
    assert "Type “redrive 3” to begin" in refused
    assert not Campaign.objects.exists()
    for _ in range(2):  # a form that is sent twice begins one
        response = client.post(summary, {"confirm": "Redrive 3", "key": key[1]})
        assert response.status_code == 302
    made = Campaign.objects.get()
    assert (made.actor, made.reason, made.note, made.rate_per_s) == (
        "user:ops",
        "exhausted",
        "the receiver is back",
        100,
    )
    pacing.advance(now=at(0))
    assert {cast.place(job_id) for job_id in ids} == {"readyjob"}


def test_a_tenant_s_desk_is_a_scope() -> None:
    cast.graveyard(2, now=LONG_AGO)
    cast.graveyard(3, now=LONG_AGO, tenant_id=cast.globex().pk)
    client = admin_cast.operator()
    address, text = _steps(client, "tenant=globex")
    assert '<strong id="matches">3</strong>' in text
    response = client.post(
        address.replace("step=report", "step=summary") + "&" + PLAN, {"confirm": "redrive 3"}
    )
    assert response.status_code == 302
    assert Campaign.objects.get().tenant_id == cast.globex().pk


@pytest.mark.parametrize(
    "query",
    [
        "?step=report",
        "?step=summary&reason=nonsense",
        "?step=report&tenant=nobody",
        "?step=report&queue=nowhere",
        "?step=nonsense&reason=exhausted",
        "?step=report&failed_before=yesterday",
    ],
)
def test_a_step_without_a_sound_scope_leads_back_to_it(query: str) -> None:
    text = page(admin_cast.operator(), WIZARD + query)
    assert "step 1 of 5" in text


def test_a_summary_without_a_note_leads_back_to_the_pace() -> None:
    cast.graveyard(1, now=LONG_AGO)
    client = admin_cast.operator()
    address, _ = _steps(client, "reason=exhausted")
    text = page(client, address.replace("step=report", "step=summary"))
    assert "step 4 of 5" in text
    assert "errorlist" in text


def test_a_scope_cannot_be_frozen_in_the_future() -> None:
    client = admin_cast.operator()
    response = client.get(f"{WIZARD}?reason=exhausted&step=report&frozen=2999-01-01T00:00:00Z")
    assert response.status_code == 302
    assert "2999" not in str(response.headers["Location"])


def test_who_may_not_redrive_has_no_wizard() -> None:
    client = admin_cast.staff("dlq.view_deadletter")
    assert client.get(WIZARD).status_code == 403
    assert (
        client.post(f"{WIZARD}?reason=exhausted&step=summary&{PLAN}", {"confirm": "redrive 0"}).status_code
        == 403
    )


# The campaign's page


def test_a_campaign_s_progress_is_read_anew_alone() -> None:
    cast.graveyard(4, now=LONG_AGO)
    made, client = cast.campaign(), admin_cast.operator()
    address = reverse("admin:dlq_campaign_change", args=[made.pk])
    text = page(client, address)
    assert "0 of 4 treated" in text
    assert "Abort…" in text
    assert "Abort…" not in page(admin_cast.staff("dlq.view_campaign"), address)
    pacing.advance(now=at(0))
    part = client.get(address, {"fragment": "progress"})
    assert part.headers["X-Fragment"] == "progress"
    assert "4 of 4 treated" in admin_cast.checked(part)
    assert "Abort" not in part.content.decode()  # it is through


def test_a_campaign_that_there_is_not() -> None:
    client = admin_cast.operator()
    for name in ("999", "x"):
        assert client.get(f"/admin/dlq/campaign/{name}/change/").status_code == 302


# Corrections


def _correct_url(job_id: int) -> str:
    from jobqueue.ids import format_id

    return reverse("admin:dlq_deadletter_correct", args=[format_id(job_id)])


def _checked(client: Client, job_id: int, payload: str, **more: Any) -> str:
    form = {"note": "n", "payload": payload, "payload_ref": "", "action": "check", **more}
    return admin_cast.checked(client.post(_correct_url(job_id), form))


def test_a_correction_is_compared_with_what_it_replaces_and_stores_nothing() -> None:
    job_id, client = (
        cast.buried(error_class="permanent", payload='{"a": 1.10, "b": [1, 2]}'),
        admin_cast.operator(),
    )
    with cast.changes_nothing(job_id):
        text = _checked(client, job_id, '{"a": 1.20, "b": [1, 2]}')
    assert "-   &quot;a&quot;: 1.10," in text
    assert "+   &quot;a&quot;: 1.20," in text
    assert cast.audited("job.payload_shown") == 1


def test_the_schema_s_faults_are_named_where_they_are() -> None:
    job_id, client = cast.buried(kind="mail", error_class="permanent", payload="{}"), admin_cast.operator()
    kinds.change(
        "mail", {"payload_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}, actor=OPS
    )
    text = _checked(client, job_id, '{"n": "x"}')
    assert "/payload/n" in text
    stored = admin_cast.checked(client.post(_correct_url(job_id), {"note": "n", "payload": '{"n": "x"}'}))
    assert "does not satisfy the schema" in stored
    assert cast.read("SELECT count(*) FROM dlq_correction") == [(0,)]


def test_a_difference_in_white_space_is_none_and_a_long_one_is_not_computed() -> None:
    assert differing.diff('{"a":1}', '{ "a" : 1 }') == []
    assert differing.diff("[" + "1," * 2_000 + "1]", "[]") is None
    assert differing.diff("not json", "[]") is not None
    signs = [line.sign for line in differing.diff('{"a": 1e400, "b": 2}', '{"a": 1e400, "b": 3}') or []]
    assert (signs.count("-"), signs.count("+")) == (1, 1)


# Many


@pytest.mark.slow
def test_a_hundred_thousand_dead_letters_begin_to_go_back_within_two_seconds() -> None:
    """S143: by the wizard's last step, memory flat."""
    import resource
    import time

    (seed,) = cast.graveyard(1, now=LONG_AGO)
    _copied(seed, 100_000)
    client = admin_cast.operator()
    address, _ = _steps(client, "reason=exhausted")
    summary = address.replace("step=report", "step=summary") + "&" + PLAN
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    response = client.post(summary, {"confirm": "redrive 100001", "key": "k"})
    took = time.monotonic() - began
    assert response.status_code == 302
    assert Campaign.objects.get().first_matches == 100_001
    assert took < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB


def _copied(job_id: int, count: int) -> None:
    """So many more dead letters like one."""
    for table, key in (("queue_job", "id"), ("dlq_deadletter", "job_id")):
        cast.read(
            f"WITH made AS (INSERT INTO {table} SELECT (r).* FROM (SELECT jsonb_populate_record(t,"
            f" jsonb_build_object('{key}', 1000000 + n)) AS r FROM {table} t CROSS JOIN generate_series(1, %s) n"
            f" WHERE t.{key} = %s) x RETURNING 1) SELECT count(*) FROM made",
            [count, job_id],
        )
