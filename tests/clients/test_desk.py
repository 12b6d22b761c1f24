"""What both workers decide, without a platform: renewals, giving back, and claims that come back empty."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobsplatform_client import NewJob, Permanent, Release, Transient, errors
from jobsplatform_client.exchange import Answer, NoReply, Reply, Request, encode
from jobsplatform_client.values import Claimed, Lease
from jobsplatform_client.worker.book import Held, LeaseBook
from jobsplatform_client.worker.desk import Complete, Desk, Fail, GiveBack, Options, verdict_of
from tests.clients.virtual import World

THEN = datetime(2035, 5, 4, 12, tzinfo=UTC)
LOST = NoReply(was_sent=True, reason="reset")


def lease(number: int, *, seconds: float = 30) -> Lease:
    return Lease.of(
        {
            "job_id": f"0-{number}",
            "generation": 1,
            "attempt": 1,
            "lease_token": "t",
            "expires_at": (THEN + timedelta(seconds=seconds)).isoformat(),
            "queue": "default",
            "kind": "a",
            "tenant": "acme",
            "priority": 2,
            "payload": None,
            "payload_ref": None,
            "operation_id": f"0-{number}",
            "request_key": None,
            "deadline": None,
            "reconcile": False,
            "earlier_generations": [],
            "checkpoint": None,
            "redrive_generation": 0,
            "traceparent": None,
        }
    )


def claimed(*numbers: int, seconds: float = 30) -> Claimed:
    return Claimed(tuple(lease(number, seconds=seconds) for number in numbers), THEN)


def renewed(at: float, **members: Any) -> dict[str, Any]:
    expires_at = (THEN + timedelta(seconds=at)).isoformat()
    return {"status": 200, "expires_at": expires_at, "cancel_requested": False, "give_back": False} | members


def desk_of(world: World, *numbers: int, have_begun: bool = True) -> tuple[Desk, list[Held]]:
    desk = Desk(world.core, Options())
    return desk, desk.book.add(claimed(*numbers), world.now, have_begun=have_begun, is_repeat=False)


def settle_with(*results: dict[str, Any]) -> Reply:
    return Reply(200, encode({"results": list(results)}))


def beat(world: World, desk: Desk, at: float) -> list[Held]:
    world.begin(desk.beat(), at)
    world.run()
    assert world.errors == []
    wanted: list[Held] = world.values[-1]
    return wanted


def test_nothing_is_renewed_before_a_third_of_the_lease() -> None:
    world = World(lambda now, request: LOST)
    desk, _ = desk_of(world, 1)
    beat(world, desk, 9.9)
    assert world.calls == []


def test_all_due_leases_are_renewed_in_one_call() -> None:
    world = World(lambda now, request: settle_with(renewed(40), renewed(40)))
    desk, held = desk_of(world, 1, 2)
    beat(world, desk, 10)
    ((_, request),) = world.calls
    assert request.path == "/v1/leases/settle"
    assert [one["job_id"] for one in json.loads(request.body or b"")["renew"]] == ["0-1", "0-2"]
    assert [round(one.ends_at) for one in held] == [40, 40]


def test_a_renewal_that_is_lost_is_tried_again_within_the_lease_and_not_often() -> None:
    world = World(lambda now, request: LOST)
    desk, (held,) = desk_of(world, 1)
    for quarter in range(4 * 60):
        beat(world, desk, quarter / 4)
    assert held.lost == "lapsed"
    assert 4 <= len(world.calls) <= 15
    assert max(at for at, _ in world.calls) < 30


def test_a_refused_renewal_tells_the_handler() -> None:
    problem = {"status": 409, "problem": {"code": "stale_generation", "status": 409}}
    world = World(lambda now, request: settle_with(problem))
    desk, (held,) = desk_of(world, 1)
    beat(world, desk, 10)
    assert held.lost == "refused"


def test_a_lease_at_its_longest_is_kept_to_its_end_and_not_renewed() -> None:
    problem = {"status": 409, "problem": {"code": "max_runtime", "status": 409}}
    world = World(lambda now, request: settle_with(problem))
    desk, (held,) = desk_of(world, 1)
    for second in (10, 20, 29):
        beat(world, desk, second)
    assert (held.lost, len(world.calls)) == (None, 1)


def test_what_has_not_begun_is_named_for_giving_back() -> None:
    world = World(lambda now, request: settle_with(renewed(40, give_back=True), renewed(40)))
    desk, held = desk_of(world, 1, 2, have_begun=False)
    assert beat(world, desk, 10) == [held[0]]
    body = json.loads(world.calls[0][1].body or b"")
    assert [one["started"] for one in body["renew"]] == [False, False]


def test_what_has_begun_is_never_given_back_by_a_renewal() -> None:
    world = World(lambda now, request: settle_with(renewed(40, give_back=True)))
    desk, _ = desk_of(world, 1)
    assert beat(world, desk, 10) == []


def test_leases_of_a_claim_that_was_repeated_are_renewed_at_once() -> None:
    (held,) = LeaseBook().add(claimed(1), 100.0, have_begun=True, is_repeat=True)
    assert held.renew_at == 100.0


def test_the_clocks_of_two_machines_are_never_compared() -> None:
    """A lease of 30 s ends 30 s from now here, whatever year it is there."""
    (held,) = LeaseBook().add(claimed(1, seconds=30), 5.0, have_begun=True, is_repeat=False)
    assert held.ends_at == pytest.approx(35)


def test_a_lapsed_attempt_still_tells_its_result() -> None:
    """Our clock may be wrong: the platform judges."""

    def serve(now: float, request: Request) -> Answer:
        return Reply(200, encode({"completed_at": THEN.isoformat(), "replayed": False, "late": False}))

    world = World(serve)
    desk, (held,) = desk_of(world, 1)
    held.lost = "lapsed"
    world.begin(desk.settle(held, Complete(1)))
    world.run()
    assert [request.path for _, request in world.calls] == ["/v1/jobs/0-1/complete"]


@pytest.mark.parametrize("lost", ["refused", "given back"])
def test_an_attempt_that_is_known_to_be_over_tells_nothing(lost: Any) -> None:
    world = World(lambda now, request: LOST)
    desk, (held,) = desk_of(world, 1)
    held.lost = lost
    world.begin(desk.settle(held, Complete(1)))
    world.run()
    assert world.calls == []
    assert len(desk.book) == 0


def test_empty_claims_that_come_back_at_once_are_spaced() -> None:
    """A platform that is ending answers long polls at once."""
    world = World(lambda now, request: LOST)
    desk = Desk(world.core, Options(wait_s=10))
    waits = [desk.idle_s(0, 0.01, 10) for _ in range(8)]
    assert waits[0] >= 0.25
    assert sum(waits) > 10
    assert max(waits) <= 5
    assert desk.idle_s(0, 10.1, 10) == desk.idle_s(3, 0.01, 10) == 0


@pytest.mark.parametrize(
    ("name", "value"), [("concurrency", 0), ("prefetch", -1), ("wait_s", 0), ("wait_s", 21)]
)
def test_options_out_of_bounds_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=r"least|20"):
        Options(**{name: value})  # type: ignore[arg-type]


# Handlers say what they like


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _deep() -> object:
    found: list[object] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (verdict_of(ValueError("caf\udce9"), while_reconciling=False), "ValueError: caf\ufffd"),
        (verdict_of(_Mute(), while_reconciling=False), "_Mute: (its text failed with RuntimeError)"),
        (Fail(Permanent("caf\udce9")), "caf\ufffd"),
        (Fail(Permanent(ValueError("why"))), "why"),  # type: ignore[arg-type]
        (Fail(Transient("x" * 10_000)), "x" * 8_000),
        (Complete({1, 2}), "invalid_result: Object of type set"),
        (Complete("caf\udce9"), "invalid_result: 'utf-8' codec"),
        (Complete(_deep()), "invalid_result: maximum recursion depth"),
    ],
)
def test_whatever_a_handler_says_is_told(verdict: Any, told: str) -> None:
    """What cannot be sent must not end the worker: its job would come back, and end the next."""
    world = World(
        lambda now, request: Reply(
            200, b'{"state":"dead","next_attempt_at":null,"reason":null,"replayed":false}'
        )
    )
    desk, [held] = desk_of(world, 1)
    world.begin(desk.settle(held, verdict))
    world.run()
    assert world.errors == []
    [(_, request)] = world.calls
    assert request.path == "/v1/jobs/0-1/fail"
    assert json.loads(request.body or b"")["message"].startswith(told)


@pytest.mark.parametrize(
    ("seconds", "sent"),
    [(1.2, 2), (-5, 0), (1e300, 315_360_000), (float("inf"), None), (float("nan"), None), ("soon", None)],
)
def test_seconds_that_are_none_are_left_out(seconds: Any, sent: int | None) -> None:
    for verdict, name in (
        (Fail(Transient("", retry_after_s=seconds)), "retry_after_s"),
        (GiveBack(Release(seconds).delay_s), "delay_s"),
    ):
        world = World(lambda now, request: LOST)
        desk, [held] = desk_of(world, 1)
        talk = desk.settle(held, verdict)
        step: Any = talk.send(None)
        assert json.loads(step.request.body).get(name) == sent
        talk.close()


@pytest.mark.parametrize("content", [b"{}", b"[]", b"nonsense", b"[" * 100_000, b'{"results":[]}'])
def test_an_answer_that_is_not_the_platforms_ends_nothing(content: bytes) -> None:
    world = World(lambda now, request: Reply(200, content))
    desk, [held] = desk_of(world, 1)
    assert beat(world, desk, 12) == []
    world.begin(desk.settle(held, Complete(1)), 13)
    world.run()
    assert world.errors == []
    for talk in (world.core.enqueue(NewJob("a", 1)), world.core.enqueue_batch([NewJob("a", 1)])):
        world.begin(talk, 14)
        world.run()
    one, many = world.errors
    assert isinstance(one, errors.NotUnderstood)
    assert isinstance(many, errors.BatchIncomplete)
    assert isinstance(many.errors[0], errors.NotUnderstood)
