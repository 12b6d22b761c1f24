"""The engine on a queue in memory: claims, hand-over, settling, draining."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from jobqueue.worker.channel import Note, Word, pack_instant, pack_notes
from jobqueue.worker.context import JobContext
from jobqueue.worker.outcomes import InvalidCheckpoint, LeaseLost, Permanent, Release, Transient
from jobsplatform.errors import StaleGeneration, Unavailable, UnknownOutcome
from tests.jobqueue.worker.fake import Rig, make_lease


def tell(rig: Rig, word: Word, job_id: int) -> None:
    held = rig.place_of(job_id)
    rig.channel.send(word, pack_notes([Note(held.place, held.job_id, held.generation)]))


@contextmanager
def held_up(rig: Rig, verb: str) -> Iterator[list[int]]:
    """Calls of this verb get no answer before the end of the block; gives how many jobs each call is about."""
    gate, original = threading.Event(), getattr(rig.queue, verb)
    sizes: list[int] = []

    def slow(calls: Sequence[Any]) -> Any:
        sizes.append(len(calls))
        gate.wait(10)
        return original(calls)

    setattr(rig.queue, verb, slow)
    try:
        yield sizes
    finally:
        gate.set()


def test_a_returned_value_completes_the_job() -> None:
    with Rig(handlers={"double": lambda job: {"twice": job.payload * 2}}) as rig:
        rig.queue.add(kind="double", payload="21")
        rig.until(rig.queue.done)
    [call] = rig.queue.calls["complete"]
    assert (call.job_id, call.generation, call.token, call.result) == (1, 1, b"t" * 16, '{"twice":42}')


def test_a_call_ends_the_idle_engine_s_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.worker.engine.POLL_FIRST_S", 600.0)
    monkeypatch.setattr("jobqueue.worker.engine.POLL_CAP_S", 600.0)
    with Rig() as rig:
        rig.engine._idle_s = 600.0
        rig.until(lambda: rig.queue.claims and rig.engine._claim_at > time.monotonic() + 60, 20)
        rig.queue.add()
        rig.engine.call()
        rig.until(rig.queue.done, 20)


def test_a_woken_engine_looks_by_itself_less_often() -> None:
    with Rig() as rig:
        rig.engine.is_woken = lambda: True
        rig.until(lambda: rig.engine._idle_s > 0.9, 20)
        rig.engine.is_woken = lambda: False
        rig.until(lambda: rig.engine._idle_s == 0.25, 20)


def test_each_outcome_settles_by_its_own_verb() -> None:
    def act(job: JobContext) -> None:
        outcomes = [Transient("later", retry_after_s=2.5), Permanent("never"), Release(7), KeyError("x")]
        raise outcomes[job.lease.job_id - 1]

    with Rig(handlers={"act": act}) as rig:
        rig.queue.add(4, "act")
        rig.until(lambda: rig.queue.done() == 4)
    fails = {call.job_id: call for call in rig.queue.calls["fail"]}
    assert (fails[1].error_class, fails[1].message, fails[1].retry_after_s) == ("transient", "later", 3)
    assert (fails[2].error_class, fails[2].message) == ("permanent", "never")
    assert fails[4].error_class == "transient"
    assert fails[4].message.startswith("KeyError: 'x'\n")
    assert [(call.job_id, call.delay_s) for call in rig.queue.calls["release"]] == [(3, 7)]


def test_an_exiting_handler_fails_its_job_and_the_thread_goes_on() -> None:
    def leave(job: JobContext) -> None:
        raise SystemExit(3)

    with Rig(handlers={"leave": leave}, concurrency=1) as rig:
        rig.queue.add(1, "leave")
        rig.queue.add(1, first_id=2)
        rig.until(lambda: rig.queue.done() == 2)
    assert rig.queue.calls["fail"][0].message.startswith("SystemExit: 3")
    assert len(rig.queue.calls["complete"]) == 1


def test_slow_jobs_are_claimed_only_for_free_threads() -> None:
    gate = threading.Event()
    with Rig(handlers={"slow": lambda job: gate.wait(5)}) as rig:
        rig.queue.add(20, "slow")
        rig.until(lambda: len(rig.held) == 4)
        time.sleep(0.3)
        assert len(rig.queue.live) == 4
        assert max(rig.queue.claims) == 4
        gate.set()
        rig.until(lambda: rig.queue.done() == 20)


def test_quick_jobs_are_claimed_ahead_in_growing_batches() -> None:
    with Rig() as rig:
        rig.queue.add(5_000)
        rig.until(lambda: rig.queue.done() == 5_000, 20)
    assert max(rig.queue.claims) > 100
    assert rig.queue.claims[0] == 4


def test_everything_held_is_dropped_in_the_end_and_places_come_back() -> None:
    with Rig() as rig:
        rig.queue.add(3_000)
        rig.until(lambda: rig.queue.done() == 3_000 and not rig.held, 20)
        rig.until(lambda: len(rig.engine._free_places) == 2_048)
        assert not any(rig.board.states)


def test_results_are_sent_again_until_the_queue_answers() -> None:
    with Rig() as rig:
        rig.queue.failures["complete"] = _deque(Unavailable(), UnknownOutcome(), RuntimeError("odd"))
        rig.queue.add()
        rig.until(rig.queue.done)
    assert len(rig.queue.calls["complete"]) == 1


def test_jobs_start_while_results_of_others_are_on_their_way() -> None:
    with Rig() as rig, held_up(rig, "complete") as sizes:
        rig.queue.add()
        rig.until(lambda: sizes)
        rig.queue.add(first_id=2)
        rig.until(lambda: len(rig.engine._settler) == 1)
        assert not rig.queue.done()


def test_what_ends_while_results_are_on_their_way_is_told_in_one_call() -> None:
    with Rig() as rig:
        with held_up(rig, "complete") as sizes:
            rig.queue.add()
            rig.until(lambda: sizes)
            rig.queue.add(50, first_id=2)
            rig.until(lambda: len(rig.engine._settler) == 50)
        rig.until(lambda: rig.queue.done() == 51)
        assert sizes == [1, 50]


def test_who_leaves_waits_for_the_answer_to_its_last_results() -> None:
    with Rig() as rig:
        with held_up(rig, "complete") as sizes:
            rig.queue.add()
            rig.until(lambda: sizes)
            rig.engine.request_drain()
            rig.engine._rouse()
            time.sleep(0.1)
            assert Word.LEAVING not in rig.words
        rig.until(lambda: Word.LEAVING in rig.words)
        assert rig.queue.done() == 1


def test_nothing_is_claimed_while_results_cannot_be_sent() -> None:
    with Rig() as rig:
        rig.queue.failures["complete"] = _deque(*[Unavailable()] * 4)
        rig.queue.add()
        rig.until(lambda: rig.engine._settler.in_trouble)
        claims = len(rig.queue.claims)
        time.sleep(0.1)
        assert len(rig.queue.claims) <= claims + 1
        rig.until(rig.queue.done)


def test_a_refused_result_drops_the_job() -> None:
    with Rig(handlers={"steal": lambda job: rig.queue.live.clear()}) as rig:
        rig.queue.add(kind="steal")
        rig.until(lambda: Word.DROPPED in rig.words)
        assert not rig.queue.done()
        assert not rig.held


def test_one_unsendable_result_does_not_hold_up_its_batch() -> None:
    import psycopg

    def complete(calls):
        if any(call.job_id == 3 for call in calls):
            raise psycopg.DataError("no")
        return original(calls)

    with Rig() as rig:
        original = rig.queue.complete
        rig.queue.complete = complete  # type: ignore[method-assign]
        rig.queue.add(6)
        rig.until(lambda: rig.queue.done() == 6)
    assert sorted(call.job_id for call in rig.queue.calls["complete"]) == [1, 2, 4, 5, 6]
    [fail] = rig.queue.calls["fail"]
    assert (fail.job_id, fail.error_class) == (3, "permanent")
    assert fail.message.startswith("invalid_result")


def test_a_lost_lease_is_told_to_the_handler_and_its_result_is_not_sent() -> None:
    seen = []

    def watch(job: JobContext) -> None:
        while not job.lease_lost:
            time.sleep(0.005)
        seen.append(job.job_id)

    with Rig(handlers={"watch": watch}) as rig:
        rig.queue.add(kind="watch")
        rig.until(lambda: rig.held)
        tell(rig, Word.LOST, 1)
        rig.until(lambda: Word.DROPPED in rig.words)
        assert seen == ["0-1"]
        assert not rig.queue.done()


def test_an_attempt_at_its_end_is_told_but_may_still_finish() -> None:
    def watch(job: JobContext) -> str:
        while not job.lease_lost:
            time.sleep(0.005)
        return "just in time"

    with Rig(handlers={"watch": watch}) as rig:
        rig.queue.add(kind="watch")
        rig.until(lambda: rig.held)
        tell(rig, Word.ENDING, 1)
        rig.until(rig.queue.done)
    assert rig.queue.calls["complete"][0].result == '"just in time"'


def test_a_cancelled_job_is_told_while_it_runs_and_handed_back_while_it_waits() -> None:
    def watch(job: JobContext) -> None:
        while not job.cancelled:
            time.sleep(0.005)
        raise Release

    with Rig(handlers={"watch": watch}, concurrency=1) as rig:
        rig.engine._pace._mean_s = 0.001  # so that a second one is claimed ahead
        rig.engine._pace._allowed = 2
        rig.queue.add(2, "watch")
        rig.until(lambda: len(rig.held) == 2)
        tell(rig, Word.CANCELLED, 2)
        rig.until(rig.queue.done)
        assert rig.queue.calls["release"][0].job_id == 2
        tell(rig, Word.CANCELLED, 1)
        rig.until(lambda: rig.queue.done() == 2)


def test_a_word_about_an_older_generation_is_ignored() -> None:
    def slow(job: JobContext) -> bool:
        time.sleep(0.2)
        return job.lease_lost

    with Rig(handlers={"slow": slow}) as rig:
        rig.queue.add(kind="slow")
        rig.until(lambda: rig.held)
        held = rig.place_of(1)
        rig.channel.send(Word.LOST, pack_notes([Note(held.place, held.job_id, held.generation + 1)]))
        rig.until(rig.queue.done)
    assert rig.queue.calls["complete"][0].result == "false"


def test_jobs_that_wait_too_long_are_given_back() -> None:
    gate = threading.Event()
    with Rig(handlers={"slow": lambda job: gate.wait(5)}, concurrency=2) as rig:
        rig.engine._pace._mean_s = 0.001
        rig.engine._pace._allowed = 100
        rig.queue.add(40, "slow")
        rig.until(lambda: len(rig.held) > 10)
        rig.until(lambda: len(rig.queue.calls["release"]) > 10)
        gate.set()


def test_a_checkpoint_returns_when_it_is_durable() -> None:
    def save(job: JobContext) -> str:
        job.checkpoint({"at": 3})
        return str(rig.queue.calls["renew"][0].checkpoint)

    with Rig(handlers={"save": save}) as rig:
        rig.queue.failures["renew"] = _deque(Unavailable())
        rig.queue.add(kind="save")
        rig.until(rig.queue.done)
    assert rig.queue.calls["complete"][0].result == '"{\\"at\\":3}"'
    assert rig.queue.calls["renew"][0].started


def test_a_checkpoint_of_a_lost_lease_raises_and_ends_quietly() -> None:
    errors: list[LeaseLost] = []

    def save(job: JobContext) -> None:
        rig.queue.live.clear()
        try:
            job.checkpoint(1)
        except LeaseLost as error:
            errors.append(error)
            raise

    with Rig(handlers={"save": save}) as rig:
        rig.queue.add(kind="save")
        rig.until(lambda: Word.DROPPED in rig.words)
        assert errors
        assert not rig.queue.done()


def test_a_checkpoint_that_cannot_be_stored_is_the_handlers_error() -> None:
    def save(job: JobContext) -> str:
        for value in ("x" * 16_384, {1: 2}, float("nan"), "a\0b", "\ud83d"):
            try:
                job.checkpoint(value)
            except InvalidCheckpoint:
                continue
            return f"took {value!r}"
        job.checkpoint("x" * 16_382)
        return "fine"

    with Rig(handlers={"save": save}) as rig:
        rig.queue.add(kind="save")
        rig.until(rig.queue.done)
    assert rig.queue.calls["complete"][0].result == '"fine"'


def test_draining_finishes_what_runs_and_hands_back_what_waits() -> None:
    gate = threading.Event()
    with Rig(handlers={"slow": lambda job: gate.wait(5)}, concurrency=2) as rig:
        rig.engine._pace._mean_s = 0.01
        rig.engine._pace._allowed = 6
        rig.queue.add(10, "slow")
        rig.until(lambda: len(rig.held) > 3)
        rig.channel.send(Word.DRAIN, pack_instant(time.monotonic() + 5))
        rig.until(lambda: len(rig.held) == 2)
        claims = len(rig.queue.claims)
        gate.set()
        rig.thread.join(2)
        rig.hear()
        assert not rig.thread.is_alive()
        assert rig.words[-1] is Word.LEAVING
        assert len(rig.queue.claims) == claims
        assert len(rig.queue.calls["complete"]) == 2


def test_draining_ends_at_the_given_instant_with_jobs_still_running() -> None:
    may_end = threading.Event()
    with Rig(handlers={"slow": lambda job: may_end.wait(60)}) as rig:
        rig.queue.add(2, "slow")
        rig.until(lambda: len(rig.held) == len(rig.engine._crew.running()) == 2, 20)
        started_at = time.monotonic()
        rig.channel.send(Word.DRAIN, pack_instant(started_at + 0.3))
        rig.thread.join(20)  # it does not end before the handlers do, did it wait for them
        assert not rig.thread.is_alive()
        assert time.monotonic() - started_at > 0.25
        rig.hear()
        assert rig.words[-1] is Word.LEAVING
        assert len(rig.held) == 2  # the keeper's, once the process has ended
        may_end.set()


def test_once_leaves_when_nothing_is_claimable() -> None:
    with Rig(once=True) as rig:
        rig.queue.add(30)
        rig.thread.join(5)
        assert not rig.thread.is_alive()
        assert rig.queue.done() == 30


def test_an_unforeseen_error_in_the_loop_is_survived() -> None:
    with Rig() as rig:
        rig.queue.failures["claim"] = _deque(RuntimeError("a"), RuntimeError("b"), Unavailable())
        rig.queue.add()
        rig.until(rig.queue.done)


def test_polls_are_stamped_only_when_the_queue_answers() -> None:
    with Rig() as rig:
        rig.until(lambda: time.monotonic() - rig.board.polled_at < 0.05)
        rig.queue.failures["claim"] = _deque(*[Unavailable()] * 1_000)
        time.sleep(0.6)
        assert time.monotonic() - rig.board.polled_at > 0.2
        assert time.monotonic() - rig.board.turned_at < 2.5


def test_a_busy_engine_is_not_deaf() -> None:
    may_end = threading.Event()
    with Rig(handlers={"slow": lambda job: may_end.wait(60)}) as rig:
        rig.queue.add(4, "slow")
        rig.until(lambda: len(rig.held) == 4)
        later_on = time.monotonic() + 0.6
        rig.until(lambda: rig.board.polled_at > later_on)
        may_end.set()


def test_the_engine_ends_with_its_keeper() -> None:
    may_end = threading.Event()
    with Rig(handlers={"slow": lambda job: may_end.wait(60)}) as rig:
        rig.queue.add(1, "slow")
        rig.until(lambda: rig.held)
        rig._sockets[0].close()
        rig.thread.join(20)  # not for the handler's end
        assert type(rig.error).__name__ == "Closed"
        may_end.set()


def test_idle_polls_back_off_to_a_quarter_of_a_second() -> None:
    with Rig() as rig:
        time.sleep(1.2)
        assert 5 <= len(rig.queue.claims) <= 14


def test_a_refusal_from_the_past_does_not_disturb() -> None:
    with Rig() as rig:
        rig.queue.failures["complete"] = _deque(StaleGeneration())
        rig.queue.add()
        rig.until(rig.queue.done)


def test_a_context_names_queue_and_tenant() -> None:
    def who(job: JobContext) -> list[object]:
        return [job.queue, job.tenant, job.operation_id, job.remaining_s > 43_000]

    with Rig(handlers={"who": who}) as rig:
        rig.queue.ready.append(make_lease(5, "who"))
        rig.until(rig.queue.done)
    assert rig.queue.calls["complete"][0].result == '["queue-1","tenant-1","0-5",true]'


def _deque(*errors: Exception):
    from collections import deque

    return deque(errors)
