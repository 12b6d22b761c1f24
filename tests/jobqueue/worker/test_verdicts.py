"""From what a handler did to what the queue is told."""

from __future__ import annotations

import math

import pytest

from jobqueue import leases
from jobqueue.worker import verdicts
from jobqueue.worker.outcomes import Failure, LeaseLost, Overload, Permanent, Release, Transient, Uncertain
from tests.jobqueue.worker.fake import make_lease

LEASE = make_lease(7)


def fail_of(error: BaseException) -> leases.Fail:
    verdict = verdicts.of_exception(LEASE, error)
    assert isinstance(verdict, leases.Fail)
    assert (verdict.job_id, verdict.generation, verdict.token) == (7, 1, LEASE.token)
    return verdict


@pytest.mark.parametrize("value", ["a\0b", "\ud83d", {1: 2}, "x" * 131_072, object()])
def test_a_result_that_cannot_be_stored_fails_for_good(value: object) -> None:
    verdict = verdicts.of_result(LEASE, value)
    assert isinstance(verdict, leases.Fail)
    assert verdict.error_class == "permanent"
    assert verdict.message.startswith("invalid_result")


@pytest.mark.parametrize(
    ("outcome", "error_class"),
    [(Transient, "transient"), (Overload, "overload"), (Permanent, "permanent"), (Uncertain, "uncertain")],
)
def test_each_failure_has_its_class(outcome: type[Failure], error_class: str) -> None:
    assert fail_of(outcome("why")).error_class == error_class
    assert fail_of(outcome("why")).message == "why"


@pytest.mark.parametrize(
    ("given", "sent"),
    [(None, None), (0.2, 1), (3, 3), (-5, 0), (math.inf, None), (math.nan, None), (1e12, 315_360_000)],
)
def test_waits_are_whole_seconds_within_bounds(given: float | None, sent: int | None) -> None:
    assert fail_of(Transient(retry_after_s=given)).retry_after_s == sent
    released = verdicts.of_exception(LEASE, Release(given))
    assert isinstance(released, leases.Release)
    assert released.delay_s == sent


def test_any_other_exception_tells_its_class_text_and_last_frames() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise LookupError("no such thing")
        deep(n - 1)

    try:
        deep(30)
    except LookupError as error:
        message = fail_of(error).message
    assert message.startswith("LookupError: no such thing\n")
    assert message.count("in deep") <= 8
    assert "raise LookupError" in message


def test_messages_can_always_be_stored() -> None:
    message = fail_of(ValueError("\0" * 4_000 + "\ud83d" + "ä" * 9_000)).message
    assert len(message.encode()) <= 8 * 1024
    assert "\0" not in message
    assert fail_of(Transient("a\0b\udc00")).message == "a\ufffdb\ufffd"


def test_an_exception_whose_text_fails_is_described_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert fail_of(Broken()).message.startswith(
        "test_an_exception_whose_text_fails_is_described_all_the_same.<locals>.Broken: (its text failed"
    )


def test_a_lost_lease_has_nothing_to_say() -> None:
    assert verdicts.of_exception(LEASE, LeaseLost()) is None
