"""Fair scheduling as callers see it: order over HTTP, many callers at once, pauses, and `why`."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jobqueue import policies
from jobqueue.ids import format_id
from tenants import registry
from tests import cast
from tests.api_cast import Api, caller, code, pointers
from tests.cast import OPS, together

ALL_BANDS = [*"HNL"] * 12


def producer(**batch: Any) -> Api:
    """A caller of acme, after a batch of jobs of the queue `work`, one a band named."""
    acme = caller("acme")
    jobs = [
        {"kind": "a", "payload": n, "queue": "work", "priority": band} for n, band in enumerate(ALL_BANDS)
    ]
    response = acme.post("/v1/jobs/batch", {"jobs": jobs} | batch)
    assert {result["status"] for result in response.json()["results"]} == {201}
    return acme


def letters(leases: list[dict[str, Any]]) -> str:
    return "".join("HNL"[lease["priority"]] for lease in leases)


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, 12])
def test_twelve_opportunities(limit: int) -> None:
    cast.queue("work", preset="hnl")
    acme = producer()
    taken = [lease for _ in range(12 // limit) for lease in acme.claim(queue="work", limit=limit)]
    assert letters(taken) == "HHHNNLHHHNNL"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("limit", [1, 3])
def test_twelve_opportunities_spread_over_callers(limit: int) -> None:
    cast.queue("work", preset="hnl")
    producer()
    shares = [2, 1, 2, 1, 2, 1, 2, 1] if limit == 1 else [3, 3, 3, 3]

    def work(api: Api, share: int) -> list[dict[str, Any]]:
        size = min(limit, share)
        return [lease for _ in range(share // size) for lease in api.claim(queue="work", limit=size)]

    callers = [caller("acme") for _ in shares]
    answers = together(*[partial(work, api, share) for api, share in zip(callers, shares, strict=True)])
    leases = [lease for answer in answers for lease in answer]  # type: ignore[union-attr]
    assert Counter(letters(leases)) == {"H": 6, "N": 4, "L": 2}


@pytest.mark.django_db
@pytest.mark.parametrize("priority", [-1, 5, True, "0", None, 1.0, "high"])
def test_a_priority_that_no_band_has_is_refused(priority: Any) -> None:
    """S79."""
    response = caller("acme").post("/v1/jobs", {"kind": "a", "payload": 1, "priority": priority})
    assert pointers(response) == ["/priority"]


@pytest.mark.django_db(transaction=True)
def test_one_key_of_two_tenants_is_two_jobs() -> None:
    """S35: at once, in equally named queues."""
    body = {"kind": "a", "payload": 1, "request_key": "K"}
    tenants = [caller("acme"), caller("globex")]
    answers = together(*[partial(api.post, "/v1/jobs", body) for api in tenants])
    assert [answer.status_code for answer in answers] == [201, 201]  # type: ignore[union-attr]
    ids = [answer.json()["job_id"] for answer in answers]  # type: ignore[union-attr]
    assert ids[0] != ids[1]
    for api, own, foreign in zip(tenants, ids, reversed(ids), strict=True):
        assert [job["job_id"] for job in api.get("/v1/jobs").json()["items"]] == [own]
        assert code(api.get(f"/v1/jobs/{foreign}/why")) == (404, "not_found")
        replay = api.post("/v1/jobs", body)
        assert (replay.status_code, replay.json()["job_id"]) == (200, own)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["queue", "tenant"])
def test_a_pause_stops_claims_within_a_second(what: str) -> None:
    """S108: claimers go on asking; enqueues are accepted and what runs may end; nothing is lost."""
    acme = caller("acme")
    total = 400
    jobs = [{"kind": "a", "payload": n} for n in range(total)]
    acme.post("/v1/jobs/batch", {"jobs": jobs})
    ends = time.monotonic() + 2.5
    paused_at: list[datetime] = []

    def work(api: Api) -> list[dict[str, Any]]:
        mine = []
        while time.monotonic() < ends:
            mine += api.claim(limit=1)
            time.sleep(0.01)
        return mine

    def pause() -> None:
        time.sleep(0.5)
        if what == "queue":
            policies.pause("default", actor=OPS)
        else:
            registry.pause("acme", actor=OPS)
        paused_at.append(datetime.now(UTC))

    *answers, refusal = together(*[partial(work, caller("acme")) for _ in range(4)], pause)
    assert refusal is None
    leases = [lease for answer in answers for lease in answer]  # type: ignore[union-attr]
    assert leases
    latest = cast.read("SELECT max(claimed_at) FROM queue_lease")[0][0]
    assert latest <= paused_at[0] + timedelta(seconds=1)
    assert cast.read("SELECT count(*) FROM queue_readyjob") == [(total - len(leases),)]
    assert acme.post("/v1/jobs", {"kind": "a", "payload": 1}).status_code == 201
    assert acme.end(leases[0], "complete").status_code == 200


# Why


@pytest.mark.django_db
def test_why_answers_as_the_contract_shows() -> None:
    acme = caller("acme")
    assert acme.claim() == []
    first, second = acme.enqueue(), acme.enqueue()
    assert acme.get(f"/v1/jobs/{first}/why").json() == {
        "state": "ready",
        "gates": [
            {"gate": "none", "detail": "Nothing holds it: it starts with the next claim.", "until": None}
        ],
        "position": 1,
        "ahead": 0,
        "start_between": None,
    }
    answer = acme.get(f"/v1/jobs/{second}/why").json()
    assert (answer["position"], answer["ahead"]) == (2, 1)
    assert answer["gates"] == [
        {"gate": "band_share", "detail": "1 job of its tenant first: 1 in P2.", "until": None}
    ]


@pytest.mark.django_db
def test_why_of_a_delayed_job_says_until_when() -> None:
    acme = caller("acme")
    job_id = acme.enqueue(delay_s=60)
    answer = acme.get(f"/v1/jobs/{job_id}/why").json()
    assert (answer["state"], answer["position"], answer["ahead"]) == ("scheduled", None, None)
    (gate,) = answer["gates"]
    assert gate["gate"] == "not_due"
    assert gate["until"] == acme.get(f"/v1/jobs/{job_id}").json()["due_at"]


@pytest.mark.django_db
def test_why_tells_a_tenant_nothing_of_others() -> None:
    globex, acme = caller("globex"), caller("acme")
    fleet = caller(None)
    for _ in range(7):
        globex.enqueue(priority=0)
    job_id = acme.enqueue()
    assert acme.get(f"/v1/jobs/{job_id}/why").json()["ahead"] == 0
    assert fleet.get(f"/v1/jobs/{job_id}/why").json()["ahead"] == 7


@pytest.mark.django_db
def test_why_takes_no_query_and_knows_no_foreign_job() -> None:
    acme = caller("acme")
    job_id = acme.enqueue()
    assert code(acme.get(f"/v1/jobs/{job_id}/why?x=1")) == (400, "invalid")
    for absent in ("0-999999", "nonsense"):
        assert code(acme.get(f"/v1/jobs/{absent}/why")) == (404, "not_found")
    assert code(caller("globex").get(f"/v1/jobs/{job_id}/why")) == (404, "not_found")
    assert code(caller("acme", "work").get(f"/v1/jobs/{job_id}/why")) == (403, "insufficient_scope")


# Ageing


@pytest.mark.django_db
def test_both_bands_of_an_aged_job_are_shown() -> None:
    cast.queue("work", preset="hnl", ageing_s=600)
    acme = caller("acme")
    fresh = acme.enqueue(queue="work", priority="L")
    now = datetime.now(UTC)
    ids = [
        cast.enqueue(queue=policies.by_name("work"), priority=2, now=now - timedelta(seconds=seconds))
        for seconds in (500, 700, 9_000)
    ]
    shown = [acme.get(f"/v1/jobs/{job_id}").json() for job_id in (fresh, *map(format_id, ids))]
    assert [job["priority"] for job in shown] == [2, 2, 2, 2]
    assert [job["effective_priority"] for job in shown] == [2, 2, 1, 0]
