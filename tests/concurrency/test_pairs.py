"""Every pair of verbs on one job, at once and one after the other: only outcomes that some order explains.

For each pair the two outcomes are first learned by running the verbs alone in both orders; the race must then end as
one of the two, in the answers as in the tables. So the table of legal outcomes is made, not written by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.db import connections

from jobqueue import fsck, policies, upkeep
from jobqueue.claiming import Lease
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobsplatform.errors import JobsPlatformError
from tenants import registry
from tests import cast
from tests.cast import OPS, at

pytestmark = pytest.mark.django_db(transaction=True)

Outcome = tuple[str, str, tuple[Any, ...]]


@dataclass(frozen=True)
class Scene:
    """A job in some place, and the lease that it has or had."""

    job_id: int
    lease: Lease | None
    key: str


def ready(key: str) -> Scene:
    return Scene(cast.enqueue(now=at(0), request_key=key), None, key)


def scheduled(key: str) -> Scene:
    return Scene(cast.enqueue(now=at(0), request_key=key, delay_s=5), None, key)


def running(key: str) -> Scene:
    lease = cast.leased(now=at(0), request_key=key, lease_s=5)
    return Scene(lease.job_id, lease, key)


def dead(key: str) -> Scene:
    lease = cast.leased(now=at(0), request_key=key, max_attempts=1)
    cast.fail(lease, now=at(1))
    return Scene(lease.job_id, lease, key)


# Verbs judge by instants of their own: what needs a live lease happens at 4, what needs a lapsed one or a due job at 6.
VERBS: dict[str, Callable[[Scene], Any]] = {
    "enqueue again": lambda scene: enqueue_jobs([cast.new_job(request_key=scene.key)], now=at(4)),
    "promote": lambda scene: upkeep.promote(now=at(6)),
    "claim": lambda scene: [lease.generation for lease in cast.claim(now=at(6))],
    "renew": lambda scene: scene.lease and cast.renew(scene.lease, now=at(4), lease_s=5),
    "complete": lambda scene: scene.lease and cast.complete(scene.lease, now=at(4)),
    "fail": lambda scene: scene.lease and cast.fail(scene.lease, now=at(4), error_class="permanent"),
    "release": lambda scene: scene.lease and cast.release(scene.lease, now=at(4)),
    "reap": lambda scene: upkeep.reap(now=at(6)),
    "cancel": lambda scene: cast.cancel(scene.job_id, now=at(6)),
    "redrive": lambda scene: cast.redriven(scene.job_id, now=at(6)).state,
    "pause": lambda scene: policies.pause("default", actor=OPS),
    "quota": lambda scene: registry.set_quota("acme", {"max_running": 0}, actor=OPS) and None,
}
SCENES = {"ready": ready, "scheduled": scheduled, "running": running, "dead": dead}
NEEDS_LEASE = {"renew", "complete", "fail", "release"}
OF_PLACE = {
    "ready": {"enqueue again", "claim", "cancel", "pause", "quota", "redrive"},
    "scheduled": {"promote", "claim", "cancel", "enqueue again"},
    "running": {"renew", "complete", "fail", "release", "reap", "cancel", "claim", "enqueue again"},
    "dead": {"redrive", "cancel", "claim", "complete", "enqueue again"},
}
EVERY = [
    (scene, *pair) for scene in SCENES for pair in itertools.combinations_with_replacement(sorted(VERBS), 2)
]
SKIPPING = {"claim", "promote", "reap"}
NOTHING = {"[]", "0", "Counter()"}
NAMES = itertools.count()


def _do(verb: str, scene: Scene) -> str:
    if verb in NEEDS_LEASE and scene.lease is None:
        return "no lease"
    try:
        return _words(VERBS[verb](scene))
    except JobsPlatformError as refused:
        return refused.code


def _words(answer: Any) -> str:
    """An answer without what differs from job to job."""
    if isinstance(answer, list) and answer and hasattr(answer[0], "replayed"):
        return f"replayed={answer[0].replayed}"
    return repr(answer)


def _standing(scene: Scene) -> tuple[Any, ...]:
    (table,) = cast.places(scene.job_id)
    row = cast.row(table, scene.job_id)
    history = sorted(
        (a["generation"], a["outcome"], a["led_to"]) for a in cast.rows("queue_attempt", scene.job_id)
    )
    return (table, row["generation"], row["attempt"], row["crashes"], row.get("cancel_requested"), *history)


def _set(place: str) -> Scene:
    return SCENES[place](f"k-{next(NAMES)}")


def _reset(scene: Scene) -> None:
    """As before the scene: nothing of the job, no pause, no quota."""
    cast.forget_job(scene.job_id)
    with connections[cast.SHARD].cursor() as shard, connections["default"].cursor() as control:
        shard.execute("UPDATE queue_policyrow SET is_dispatch_paused = false WHERE is_dispatch_paused")
        shard.execute("UPDATE tenants_tenantstate SET limits_running = false WHERE limits_running")
        shard.execute("DELETE FROM tenants_tenantlimit")
        control.execute("UPDATE queue_queue SET is_dispatch_paused = false WHERE is_dispatch_paused")
        control.execute("DELETE FROM tenants_quota")
    policies.forget()


def _one_after_the_other(place: str, first: str, second: str) -> Outcome:
    scene = _set(place)
    one = _do(first, scene)
    other = _do(second, scene)
    outcome = (one, other, _standing(scene))
    _reset(scene)
    return outcome


def _check(place: str, one: str, other: str, rounds: int) -> None:
    cast.queue()
    forward = _one_after_the_other(place, one, other)
    there, here, standing = _one_after_the_other(place, other, one)
    legal = {forward, (here, there, standing)}
    for _ in range(rounds):
        scene = _set(place)
        answers = cast.together(partial(_do, one, scene), partial(_do, other, scene))
        assert not [answer for answer in answers if isinstance(answer, BaseException)], answers
        outcome = (str(answers[0]), str(answers[1]), _standing(scene))
        if outcome not in legal:
            assert _passed_over(place, one, other, outcome), (place, one, other, outcome, legal)
        assert list(fsck.check()) == []
        _reset(scene)


def _passed_over(place: str, one: str, other: str, outcome: Outcome) -> bool:
    """Passes and claims skip a job that is being touched, as if they had come a moment too early."""
    for mine, index, theirs in ((one, 0, other), (other, 1, one)):
        if (
            mine in SKIPPING
            and outcome[index] in NOTHING
            and (outcome[1 - index], outcome[2]) == _alone(place, theirs)
        ):
            return True
    return False


def _alone(place: str, verb: str) -> tuple[str, tuple[Any, ...]]:
    scene = _set(place)
    found = (_do(verb, scene), _standing(scene))
    _reset(scene)
    return found


@pytest.mark.parametrize("place", OF_PLACE)
def test_two_verbs_at_once_end_as_in_some_order(place: str) -> None:
    """S134: the verbs that act on a job in this place, each against each."""
    for one, other in itertools.combinations_with_replacement(sorted(OF_PLACE[place]), 2):
        _check(place, one, other, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "one", "other"), EVERY, ids=["-".join(pair).replace(" ", "_") for pair in EVERY]
)
def test_any_two_verbs_at_once_end_as_in_some_order(place: str, one: str, other: str) -> None:
    """S134, whole: every verb against every verb in every place."""
    _check(place, one, other, rounds=8)
