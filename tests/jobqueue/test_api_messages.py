"""The messages face, as a client meets it."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import pytest
from django.db import connections

from jobqueue import upkeep
from tests import cast
from tests.api_cast import Api, caller, code, pointers
from tests.cast import at, wait_until

pytestmark = pytest.mark.django_db
QUEUE = "/v1/queues/default"
HI = base64.b64encode(b"hi").decode()


@pytest.fixture
def acme() -> Api:
    return caller("acme")


def send(api: Api, **members: Any) -> dict[str, Any]:
    response = api.post(f"{QUEUE}/messages", {"body": HI} | members)
    assert response.status_code == 202, response.content
    sent: dict[str, Any] = response.json()
    return sent


def receive(api: Api, **members: Any) -> list[dict[str, Any]]:
    response = api.post(f"{QUEUE}/receive", members)
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["messages"]
    return found


def ack(api: Api, **lists: Any) -> dict[str, Any]:
    response = api.post(f"{QUEUE}/ack", lists)
    assert response.status_code == 200, response.content
    done: dict[str, Any] = response.json()
    return done


# Sending


def test_a_sent_message_is_told_with_its_id_and_shard(acme: Api) -> None:
    sent = send(acme)
    assert sent == {"id": sent["id"], "shard": 0, "replayed": False}


def test_a_repeat_within_the_window_gives_the_first_id(acme: Api) -> None:
    first = send(acme, dedup_key="K")
    assert send(acme, dedup_key="K") == {"id": first["id"], "shard": 0, "replayed": True}
    other = send(acme, dedup_key="K", body="")
    assert other == {"id": first["id"], "shard": 0, "replayed": True, "same_content": False}


def test_an_idempotency_key_is_a_dedup_key(acme: Api) -> None:
    first = acme.post(f"{QUEUE}/messages", {"body": HI}, idempotency_key="K").json()
    assert send(acme, dedup_key="K")["id"] == first["id"]


def test_the_jobs_face_shows_the_same_message(acme: Api) -> None:
    sent = send(acme, priority=1)
    job = acme.get(f"/v1/jobs/{sent['id']}?include=payload").json()
    assert (job["kind"], job["priority"], job["state"], job["payload"]) == ("message", 1, "ready", HI)


@pytest.mark.parametrize(("size", "status"), [(0, 202), (131_072, 202), (131_073, 413)])
def test_a_body_is_measured_decoded(acme: Api, size: int, status: int) -> None:
    """S75."""
    body = base64.b64encode(b"x" * size).decode()
    assert acme.post(f"{QUEUE}/messages", {"body": body}).status_code == status


@pytest.mark.parametrize("body", ["aGk", "a?k=", "aGk=\n", " aGk=", "aGk=aGk=", 5, None, ["aGk="]])
def test_what_is_not_base64_is_refused(acme: Api, body: Any) -> None:
    assert pointers(acme.post(f"{QUEUE}/messages", {"body": body})) == ["/body"]


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"priority": 5}, "/priority"),
        ({"priority": "P9"}, "/priority"),
        ({"deliver_at": "2090-01-01T00:00:00Z"}, "/deliver_at"),
        ({"deliver_at": "2030-01-01"}, "/deliver_at"),
        ({"delay_s": -1}, "/delay_s"),
        ({"delay_s": 5, "deliver_at": "2030-01-01T00:00:00Z"}, "/delay_s"),
        ({"expires_in_s": 0}, "/expires_in_s"),
        ({"dedup_key": ""}, "/dedup_key"),
        ({"payload": 1}, "/payload"),
    ],
)
def test_wrong_members_are_refused_where_they_stand(acme: Api, members: Any, pointer: str) -> None:
    assert pointers(acme.post(f"{QUEUE}/messages", {"body": HI} | members)) == [pointer]


def test_a_message_may_lie_years_ahead(acme: Api) -> None:
    """S141."""
    sent = send(acme, delay_s=10 * 365 * 86_400)
    assert acme.get(f"/v1/jobs/{sent['id']}").json()["state"] == "scheduled"
    assert receive(acme) == []


def test_a_fleet_token_must_name_the_tenant_of_what_it_sends() -> None:
    assert code(caller(None).post(f"{QUEUE}/messages", {"body": HI})) == (400, "tenant_required")


# Receiving and acknowledging


def test_a_received_message_has_all_that_a_consumer_needs(acme: Api) -> None:
    sent = send(acme, priority=0)
    (message,) = receive(acme)
    assert message | {
        "id": sent["id"],
        "priority": 0,
        "receipt": f"{sent['id']}-1",
        "deliveries": 1,
        "body": HI,
    } == (message)
    assert message["enqueued_at"] < message["expires_at"]


def test_one_tenant_never_receives_anothers(acme: Api) -> None:
    send(acme)
    assert receive(caller("globex")) == []


def test_another_token_of_the_same_tenant_cannot_acknowledge(acme: Api) -> None:
    send(acme)
    (message,) = receive(acme)
    rejected = ack(caller("acme"), ack=[message["receipt"]])["rejected"]
    assert rejected == [{"receipt": message["receipt"], "code": "stale_generation"}]
    assert ack(acme, ack=[message["receipt"]])["ack"] == [message["receipt"]]


def test_one_call_may_hold_a_thousand_receipts_and_no_more(acme: Api) -> None:
    assert len(ack(acme, ack=["x"] * 1_000)["rejected"]) == 1
    assert pointers(acme.post(f"{QUEUE}/ack", {"ack": ["x"] * 600, "release": ["x"] * 401})) == [""]


def test_a_faulty_item_refuses_the_call(acme: Api) -> None:
    body = {"extend": [{"receipt": "0-1-1", "lease_s": 0}], "fail": [{"message": "no receipt"}]}
    assert pointers(acme.post(f"{QUEUE}/ack", body)) == ["/extend/0/lease_s", "/fail/0/receipt"]


# Numbers


def test_stats_count_bands_and_ages_and_what_is_leased(acme: Api) -> None:
    for priority in (0, 0, 2):
        send(acme, priority=priority)
    send(acme, delay_s=60)
    receive(acme)
    stats = acme.get(f"{QUEUE}/stats").json()
    assert stats["visible"] == {"p0": 1, "p1": 0, "p2": 1, "p3": 0, "p4": 0}
    assert set(stats["oldest_age_s"]) == {"p0", "p2"}
    assert (stats["scheduled"], stats["leased"], stats["dlq"]) == (1, 1, 0)
    assert stats["shards"] == {"0": "ok"}


def test_stats_count_dead_letters(acme: Api) -> None:
    acme.kill()
    assert acme.get(f"{QUEUE}/stats").json()["dlq"] == 1


def test_a_tenant_s_stats_are_its_own_and_the_fleet_s_are_all(acme: Api) -> None:
    send(acme)
    assert caller("globex").get(f"{QUEUE}/stats").json()["visible"]["p2"] == 0
    assert caller(None).get(f"{QUEUE}/stats").json()["visible"]["p2"] == 1


def test_counts_end_at_a_bound_and_say_so(acme: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.stats.COUNT_MAX", 2)
    for _ in range(3):
        send(acme)
    stats = acme.get(f"{QUEUE}/stats").json()
    assert (stats["visible"]["p2"], stats["capped"]) == (2, True)


def test_nothing_to_do_wants_no_workers(acme: Api) -> None:
    assert acme.get(f"{QUEUE}/scale").json() == {
        "backlog": 0,
        "runnable": 0,
        "desired_workers": 0,
        "oldest_age_s": 0.0,
    }


def test_scale_wants_hands_for_what_runs_and_for_a_minute_s_catching_up(acme: Api) -> None:
    for _ in range(120):
        cast.enqueue(now=None)
    send(acme, delay_s=60)
    receive(acme)
    scale = acme.get(f"{QUEUE}/scale").json()
    assert (scale["backlog"], scale["runnable"], scale["desired_workers"]) == (121, 120, 2)


def test_queues_are_listed_newest_first_page_by_page(acme: Api) -> None:
    cast.queue("second", preset="hnl")
    first = acme.get("/v1/queues?limit=1").json()
    assert [item["name"] for item in first["items"]] == ["second"]
    assert [band["name"] for band in first["items"][0]["bands"]] == ["H", "N", "L"]
    rest = acme.get(f"/v1/queues?cursor={first['next']}").json()
    assert ([item["name"] for item in rest["items"]], rest["next"]) == (["default"], None)


def test_a_token_sees_the_queues_that_it_may_use() -> None:
    cast.queue("second")
    narrow = caller("acme", queues=["second"])
    assert [item["name"] for item in narrow.get("/v1/queues").json()["items"]] == ["second"]


# Giving back


def test_unstarted_bulk_is_named_for_giving_back_when_urgent_work_has_waited() -> None:
    cast.enqueue(now=at(0), priority=4)
    bulk = cast.claim_one(now=at(0), prefetch=True)
    cast.enqueue(now=at(1), priority=0)
    assert cast.renew(bulk, now=at(1.05), started=False).give_back is False
    assert cast.renew(bulk, now=at(1.2), started=False).give_back is True


@pytest.mark.parametrize(
    ("held", "waiting", "started"), [(4, 3, False), (1, 0, False), (4, 0, True), (0, 4, False)]
)
def test_nothing_is_named_that_is_started_or_nearly_as_urgent(held: int, waiting: int, started: bool) -> None:
    cast.enqueue(now=at(0), priority=held)
    lease = cast.claim_one(now=at(0), prefetch=True)
    cast.enqueue(now=at(1), priority=waiting)
    assert cast.renew(lease, now=at(2), started=started).give_back is False


# Consumer loops


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("total", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_message_is_acknowledged_once_whatever_consumers_do(total: int) -> None:
    """One works, one crashes with what it holds, one loses its leases and comes too late, one extends in time."""
    producer = caller("acme")
    for n in range(total):
        send(producer, body=base64.b64encode(str(n).encode()).decode(), priority=n % 5)
    acked: list[str] = []
    rejected: list[str] = []
    lock = threading.Lock()

    def settled(api: Api, receipts: list[str]) -> None:
        done = ack(api, ack=receipts)
        with lock:
            acked.extend(done["ack"])
            rejected.extend(one["code"] for one in done["rejected"])

    def crash() -> None:
        receive(caller("acme"), max=20, lease_s=1)

    def lose() -> None:
        api = caller("acme")
        late = [one["receipt"] for one in receive(api, max=20, lease_s=1)]
        wait_until(lambda: not ack(api, extend=[{"receipt": late[0], "lease_s": 1}])["extend"] or _lapse())
        settled(api, late)

    def extend() -> None:
        api = caller("acme")
        held = [one["receipt"] for one in receive(api, max=20, lease_s=5)]
        assert len(ack(api, extend=[{"receipt": one, "lease_s": 60} for one in held])["extend"]) == len(held)
        settled(api, held)

    def work() -> None:
        api = caller("acme")
        while len(acked) < total:
            upkeep.reap()
            settled(api, [one["receipt"] for one in receive(api, max=50, wait_s=1)])

    answers = cast.together(crash, lose, extend, work, work)
    connections.close_all()
    assert answers == [None] * 5
    assert len(acked) == len(set(acked)) == total
    assert len({receipt.rsplit("-", 1)[0] for receipt in acked}) == total
    assert set(rejected) <= {"lease_expired", "stale_generation", "already_finished"}
    assert len(rejected) >= 20


def _lapse() -> bool:
    """Pass over a lease's second; answers that the condition does not hold yet."""
    time.sleep(1.2)
    return False
