"""Versions of a queue's policy: made live, tried by a share of claims, rolled out, taken back, and answerable for."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobqueue import policies
from jobqueue.models import PolicyRow, PolicyVersion, Queue
from jobqueue.policies import Band
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound
from tests import cast
from tests.cast import OPS, SHARD, at

pytestmark = pytest.mark.django_db

EVEN = (Band("H"), Band("N"), Band("L"))


@pytest.fixture(autouse=True)
def _work(db: None) -> None:
    cast.queue("work", preset="hnl")


def change(bands: Sequence[Band] = EVEN, **more: Any) -> PolicyVersion:
    return policies.set_policy("work", {"bands": bands}, **({"actor": OPS} | more))


def fill(count: int = 30) -> None:
    for band in range(3):
        cast.enqueue_many(count, queue=policies.by_name("work"), priority=band)


def taken(limit: int = 12) -> str:
    return "".join("HNL"[lease.priority] for lease in cast.claim("work", limit=limit, now=at(1)))


def versions_used() -> Counter[int]:
    return Counter(dict(cast.read("SELECT policy_version, count(*) FROM queue_lease GROUP BY 1")))


def test_weights_change_while_jobs_wait() -> None:
    fill()
    assert taken() == "HHHNNLHHHNNL"
    change()
    assert taken(6) == "HNLHNL"


def test_a_version_says_who_when_why_and_since_when() -> None:
    made = change(reason="L starved")
    first, second = PolicyVersion.objects.filter(queue__name="work").order_by("number")
    assert (first.number, first.actor, first.bands[0]["weight"]) == (1, OPS, 3)
    assert (second.number, second.actor, second.reason) == (2, OPS, "L starved")
    assert second.in_force_from == made.in_force_from
    assert second.in_force_from is not None
    assert second.created_at <= second.in_force_from
    assert cast.audited("policy.set", alias="default") == 1


def test_every_lease_and_attempt_names_its_version() -> None:
    fill(2)
    (lease,) = cast.claim("work", now=at(1))
    change()
    (other,) = cast.claim("work", now=at(1))
    for held, number in ((lease, 1), (other, 2)):
        assert cast.row("queue_lease", held.job_id)["policy_version"] == number
        cast.complete(held, now=at(2))
        assert cast.row("queue_attempt", held.job_id)["policy_version"] == number


def test_the_shards_are_told() -> None:
    change()
    assert [band["weight"] for band in PolicyRow.objects.using(SHARD).get(name="work").bands] == [1, 1, 1]


def test_a_share_of_claims_tries_a_version() -> None:
    fill()
    change(share=0.5)
    for _ in range(60):
        cast.claim("work", now=at(1))
    used = versions_used()
    assert set(used) == {1, 2}
    assert 12 <= used[2] <= 48
    assert policies.by_name("work").policy_number == 1


def test_jobs_are_shared_by_the_version_that_a_claim_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    fill()
    change(share=0.5)
    monkeypatch.setattr("random.random", lambda: 0.4)
    assert taken() == "HNLHNLHNLHNL"
    monkeypatch.setattr("random.random", lambda: 0.6)
    assert taken() == "HHHNNLHHHNNL"


def test_a_trial_is_rolled_out_step_by_step() -> None:
    fill()
    change(share=0)
    assert taken() == "HHHNNLHHHNNL"
    policies.roll_out("work", 0.25, actor=OPS)
    trial = policies.by_name("work").trial
    assert trial is not None
    assert (trial.share, trial.scheduling.version) == (0.25, 2)
    assert PolicyVersion.objects.get(queue__name="work", number=2).in_force_from is None
    policies.roll_out("work", 1, actor=OPS, reason="it is good")
    queue = policies.by_name("work")
    assert (queue.policy_number, queue.trial, queue.bands) == (2, None, EVEN)
    assert PolicyVersion.objects.get(queue__name="work", number=2).in_force_from is not None
    assert taken(6) == "HNLHNL"
    assert cast.audited("policy.roll_out", alias="default") == 2


def test_a_return_gives_up_the_trial() -> None:
    fill()
    change(share=0.9)
    assert policies.return_policy("work", actor=OPS).number == 1
    queue = policies.by_name("work")
    assert (queue.policy_number, queue.trial) == (1, None)
    assert taken() == "HHHNNLHHHNNL"
    with pytest.raises(Invalid, match="no version on trial"):
        policies.roll_out("work", 1, actor=OPS)


def test_a_return_goes_back_to_what_was_in_force_and_a_second_one_undoes_it() -> None:
    before = policies.by_name("work").bands
    change(share=0.1)
    change()  # the one on trial is given up: it was never in force
    back = policies.return_policy("work", actor=OPS, reason="worse")
    assert back.number == 4
    assert policies.by_name("work").bands == before
    assert policies.return_policy("work", actor=OPS).number == 5
    assert policies.by_name("work").bands == EVEN
    assert cast.audited("policy.return", alias="default") == 2


def test_there_may_be_nothing_to_return_to() -> None:
    with pytest.raises(Invalid, match="no other policy"):
        policies.return_policy("work", actor=OPS)


def test_settings_of_the_policy_make_a_version_and_others_do_not() -> None:
    policies.change_queue("work", {"lease_s": 40}, actor=OPS)
    assert policies.by_name("work").policy_number == 1
    policies.change_queue("work", {"ageing_s": 60, "lease_s": 50}, actor=OPS, reason="old work")
    assert policies.by_name("work").policy_number == 2
    assert PolicyVersion.objects.get(queue__name="work", number=2).ageing_s == 60
    policies.change_queue("work", {"ageing_s": 60}, actor=OPS)
    assert policies.by_name("work").policy_number == 2
    policies.return_policy("work", actor=OPS)
    queue = policies.by_name("work")
    assert (queue.ageing_s, queue.lease_s) == (None, 50)


def test_the_default_queue_has_its_first_version() -> None:
    assert policies.by_name("default").policy_number == 1
    assert [version.number for version in policies.versions("default")] == [1]


H, N, L = policies.PRESETS["hnl"][0]


@pytest.mark.parametrize(
    ("bands", "pointer"),
    [
        ((H, N), "/bands"),
        ((H, L, N), "/bands"),
        ((H, N, L, Band("X")), "/bands"),
        ((H, replace(N, name="H"), L), "/bands/1"),
        ((H, replace(N, weight=0), L), "/bands/1"),
        ((H, replace(N, weight=1_000_001), L), "/bands/1"),
        ((H, replace(N, weight=True), L), "/bands/1"),
        ((H, replace(N, strict=True), L), "/bands/1"),
        ((replace(H, strict=True, bulk=True), N, L), "/bands/0"),
        ((replace(H, name=""), N, L), "/bands/0"),
        ((*(Band(f"b{n}") for n in range(101)),), "/bands"),
        ((), "/bands"),
    ],
)
def test_bands_that_cannot_be(bands: Sequence[Band], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        change(bands)
    assert [error.pointer for error in refused.value.errors] == [pointer]
    assert PolicyVersion.objects.filter(queue__name="work").count() == 1


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf"), True])
def test_shares_that_cannot_be(share: float) -> None:
    for call in (lambda: change(share=share), lambda: policies.roll_out("work", share, actor=OPS)):
        with pytest.raises(Invalid, match="0 to 1"):
            call()


@pytest.mark.parametrize(
    "changes", [{"reserved_share": 0.6}, {"cost_model": "luck"}, {"ageing_s": 0}, {"lease_s": 3}]
)
def test_settings_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        policies.set_policy("work", changes, actor=OPS)
    assert refused.value.errors[0].pointer == f"/{next(iter(changes))}"
    assert PolicyVersion.objects.filter(queue__name="work").count() == 1


def test_a_queue_that_is_not_there() -> None:
    verbs = [
        lambda: policies.set_policy("nowhere", {}, actor=OPS),
        lambda: policies.roll_out("nowhere", 1, actor=OPS),
        lambda: policies.return_policy("nowhere", actor=OPS),
        lambda: policies.versions("nowhere"),
    ]
    for verb in verbs:
        with pytest.raises(NotFound):
            verb()


def test_a_band_can_become_strict() -> None:
    fill()
    change((Band("H", strict=True), Band("N", weight=2), Band("L", bulk=True)))
    assert taken(6) == "HHHHHH"


def test_another_process_follows_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    old = policies.by_name("work")
    change()
    policies._cache["work"] = (time.monotonic() + policies.CACHE_SECONDS, old)
    assert policies.by_name("work").policy_number == 1
    later = time.monotonic() + 5.01
    monkeypatch.setattr("jobqueue.policies.time.monotonic", lambda: later)
    assert policies.by_name("work").policy_number == 2


# The command


def policy(*arguments: str) -> str:
    out = io.StringIO()
    call_command("policy", "work", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_shows_sets_rolls_out_and_returns() -> None:
    assert "* 1  H:3 N:2 L:1, reserved 0.05, unit" in policy()
    assert " 50% 2  H:3 N:2 L:4" in policy("--set", "L=4", "--share", "0.5", "--reason", "month's end")
    assert " 75% 2" in policy("--roll-out", "0.75")
    assert "   * 2  H:3 N:2 L:4" in policy("--roll-out", "1")
    assert "   * 3  H:3 N:2 L:1" in policy("--return")
    assert policies.by_name("work").bands[2].weight == 1
    assert "service_time, ageing 600 s" in policy("--set", "ageing_s=600", "cost_model=service_time")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "X=4"], "neither a band nor a setting"),
        (["--set", "L=many"], "whole number"),
        (["--set", "L=0"], "from 1 to"),
        (["--set", "L=2", "--share", "2"], "0 to 1"),
        (["--roll-out", "1"], "no version on trial"),
        (["--return"], "no other policy"),
    ],
)
def test_the_command_refuses_in_a_line(arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        policy(*arguments)


def test_the_command_knows_no_such_queue() -> None:
    with pytest.raises(CommandError, match="no queue"):
        call_command("policy", "nowhere")


def test_unreached_shards_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "push", lambda queue: [3])
    with pytest.raises(JobsPlatformError, match="not reached: 3"):
        change()
    assert Queue.objects.get(name="work").policy_number == 2  # stored: a repeat of the push is enough
