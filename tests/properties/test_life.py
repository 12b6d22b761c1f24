"""One job's life in random order against a small model of it: one place, rising generations, one completion."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobqueue import lanes, policies, upkeep
from jobqueue.claiming import Lease
from jobqueue.leases import Completed, Failed, Released, Renewed
from jobsplatform.errors import (
    AlreadyFinished,
    AlreadyRedriven,
    Conflict,
    CorrectionRequired,
    JobsPlatformError,
    NotDead,
    RedriveLimit,
)
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db

MAX_ATTEMPTS, MAX_CRASHES, MAX_RELEASES, MAX_REDRIVES = 3, 2, 3, 2
ENDED = ("result", "deadletter")


@dataclass
class Model:
    """What must be true of the job; times in seconds."""

    place: str = "readyjob"
    generation: int = 0
    attempt: int = 0
    crashes: int = 0
    releases: int = 0
    redrives: int = 0
    deadline: float | None = None
    due: float = 0
    expires: float = 0
    is_started: bool = True
    cancel_requested: bool = False
    reason: str = ""
    is_corrected: bool = False
    completions: int = 0
    calls: dict[tuple[int, str, Any], Any] = field(
        default_factory=dict
    )  # what ended a generation → the answer


class Life(RuleBasedStateMachine):
    """Rules are verbs at a chosen instant; each checks its answer against the model and moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.undo = ExitStack()
        for alias in ("default", cast.SHARD):
            self.undo.enter_context(transaction.atomic(using=alias))
        lanes.forget()
        policies.forget()
        self.queue = cast.queue(
            "life",
            max_attempts=MAX_ATTEMPTS,
            max_crashes=MAX_CRASHES,
            max_releases=MAX_RELEASES,
            max_redrives=MAX_REDRIVES,
        )
        self.clock = 0.0
        self.model = Model()
        self.leases: list[Lease] = []
        self.job_id = 0

    def teardown(self) -> None:
        for alias in ("default", cast.SHARD):
            transaction.set_rollback(True, using=alias)
        self.undo.close()

    @property
    def now(self) -> datetime:
        return at(self.clock)

    @initialize(delay=st.sampled_from([None, 20]), deadline=st.sampled_from([None, None, 100, 400]))
    def enqueue(self, delay: int | None, deadline: int | None) -> None:
        ends = None if deadline is None else at(deadline)
        self.job_id = cast.enqueue(now=self.now, queue=self.queue, delay_s=delay, deadline=ends)
        self.model.deadline = deadline
        if delay is not None:
            self.model.place, self.model.due = "scheduledjob", delay

    @rule(seconds=st.sampled_from([0.5, 3, 20, 29.5, 31, 90]))
    def time_passes(self, seconds: float) -> None:
        self.clock += seconds

    # Waiting

    @rule()
    def promote(self) -> None:
        upkeep.promote(now=self.now)
        if self.model.place == "scheduledjob" and self.model.due <= self.clock:
            self.model.place = "readyjob"

    @rule()
    def expire(self) -> None:
        upkeep.expire(now=self.now)
        m = self.model
        if m.place in ("readyjob", "scheduledjob") and m.deadline is not None and m.deadline <= self.clock:
            self._end("result" if m.generation == 0 else "deadletter", "deadline_exceeded")

    @rule(prefetch=st.booleans())
    def claim(self, prefetch: bool) -> None:
        found = cast.claim(self.queue, now=self.now, prefetch=prefetch)
        m = self.model
        may = m.place == "readyjob" and (m.deadline is None or m.deadline > self.clock)
        assert len(found) == may
        if may:
            m.place, m.generation, m.attempt = "lease", m.generation + 1, m.attempt + 1
            m.expires, m.is_started, m.cancel_requested = self.clock + 30, not prefetch, False
            assert (found[0].generation, found[0].attempt) == (m.generation, m.attempt)
            self.leases.append(found[0])

    # Running, with any lease that was ever handed out

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        answer = self._try(cast.renew, lease)
        if self._is_live(lease):
            assert isinstance(answer, Renewed), answer
            self.model.expires = max(self.model.expires, self.clock + 30)
            self.model.is_started = True
            assert answer == Renewed(at(self.model.expires), self.model.cancel_requested)
        else:
            assert isinstance(answer, Conflict), answer

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), result=st.sampled_from(["1", "2"]))
    def complete(self, data: st.DataObject, result: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        answer = self._try(cast.complete, lease, result=result)
        if self._is_live(lease):
            assert isinstance(answer, Completed), answer
            m = self.model
            assert (answer.replayed, answer.late) == (
                False,
                m.deadline is not None and m.deadline < self.clock,
            )
            m.completions += 1
            self._remember(lease, "complete", result, answer)
            self._end("result")
        else:
            self._refused_or_told_again(lease, "complete", result, answer)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), error_class=st.sampled_from(["transient", "permanent", "uncertain"]))
    def fail(self, data: st.DataObject, error_class: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        answer = self._try(cast.fail, lease, error_class=error_class)
        if not self._is_live(lease):
            self._refused_or_told_again(lease, "fail", error_class, answer)
            return
        assert isinstance(answer, Failed), answer
        self._remember(lease, "fail", error_class, answer)
        self._after_failure(error_class, answer)

    def _after_failure(self, error_class: str, answer: Failed) -> None:
        m = self.model
        if m.cancel_requested:
            assert answer.state == "cancelled"
            self._end("result")
        elif error_class == "permanent":
            self._end("deadletter", "invalid")
        elif m.attempt >= MAX_ATTEMPTS:
            self._end("deadletter", "uncertain" if error_class == "uncertain" else "exhausted")
        elif answer.state == "dead":
            assert m.deadline is not None
            assert self.clock + 2**m.attempt >= m.deadline
            self._end("deadletter", "deadline_exceeded")
        else:
            assert answer.next_attempt_at is not None
            wait = (answer.next_attempt_at - self.now).total_seconds()
            assert 2**m.attempt / 2 <= wait <= 2**m.attempt
            m.place, m.due = "scheduledjob", self.clock + wait
        assert answer.reason == (m.reason or None)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), delay=st.sampled_from([None, 20]))
    def release(self, data: st.DataObject, delay: int | None) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        answer = self._try(cast.release, lease, delay_s=delay)
        if not self._is_live(lease):
            self._refused_or_told_again(lease, "release", delay, answer)
            return
        assert isinstance(answer, Released), answer
        self._remember(lease, "release", delay, answer)
        m = self.model
        m.attempt -= 1
        m.releases += m.is_started  # what nobody started may be given back for ever
        if m.cancel_requested:
            self._end("result")
        elif m.releases > MAX_RELEASES:
            self._end("deadletter", "released_too_often")
        else:
            m.place, m.due = ("scheduledjob", self.clock + delay) if delay else ("readyjob", 0)

    @rule()
    def reap(self) -> None:
        upkeep.reap(now=self.now)
        m = self.model
        if m.place != "lease" or m.expires > self.clock:
            return
        m.attempt -= not m.is_started
        m.crashes += m.is_started
        if m.cancel_requested:
            self._end("result")
        elif m.is_started and m.crashes >= MAX_CRASHES:
            self._end("deadletter", "poison")
        elif m.attempt >= MAX_ATTEMPTS:
            self._end("deadletter", "exhausted")
        elif m.deadline is not None and m.deadline <= self.clock:
            self._end("deadletter", "deadline_exceeded")
        else:
            m.place = "readyjob"

    # From outside

    @rule()
    def cancel(self) -> None:
        m = self.model
        try:
            answer = cast.cancel(self.job_id, now=self.now)
        except AlreadyFinished:
            assert m.place in ENDED
            return
        if m.place == "lease":
            assert answer.cancel_requested
            m.cancel_requested = True
        else:
            assert m.place in ("readyjob", "scheduledjob")
            self._end("result")

    @precondition(lambda self: self.model.place == "deadletter")
    @rule()
    def correct(self) -> None:
        cast.correct(self.job_id)
        self.model.is_corrected = True

    @rule()
    def redrive(self) -> None:
        m = self.model
        deadline = None if m.deadline is None or m.deadline > self.clock else self.clock + 300
        try:
            answer = cast.redriven(
                self.job_id, now=self.now, deadline=None if deadline is None else at(deadline)
            )
        except CorrectionRequired:
            assert m.place == "deadletter"
            assert m.reason in ("invalid", "poison")
            assert not m.is_corrected
        except RedriveLimit:
            assert (m.place, m.redrives) == ("deadletter", MAX_REDRIVES)
        except NotDead:
            assert m.place != "deadletter"
        except AlreadyRedriven:
            assert m.place != "deadletter"
            assert m.redrives
        else:
            assert m.place == "deadletter"
            m.redrives += 1
            assert (answer.redrive_generation, answer.state) == (m.redrives, "ready")
            m.place, m.reason, m.attempt, m.crashes, m.releases, m.is_corrected = (
                "readyjob",
                "",
                0,
                0,
                0,
                False,
            )
            m.deadline = m.deadline if deadline is None else deadline

    # Helpers

    def _try(self, verb: Any, lease: Lease, **arguments: Any) -> Any:
        try:
            return verb(lease, now=self.now, **arguments)
        except JobsPlatformError as refused:
            return refused

    def _is_live(self, lease: Lease) -> bool:
        m = self.model
        return m.place == "lease" and lease.generation == m.generation and self.clock < m.expires

    def _remember(self, lease: Lease, verb: str, arguments: Any, answer: Any) -> None:
        self.model.calls[lease.generation, verb, arguments] = answer

    def _refused_or_told_again(self, lease: Lease, verb: str, arguments: Any, answer: Any) -> None:
        told = self.model.calls.get((lease.generation, verb, arguments))
        if told is None:
            assert isinstance(answer, Conflict), answer
        else:
            assert answer.replayed
            assert (answer.__class__, str(answer)) == (
                told.__class__,
                str(told).replace("replayed=False", "replayed=True"),
            )

    def _end(self, place: str, reason: str = "") -> None:
        self.model.place, self.model.reason = place, reason if place == "deadletter" else ""

    # What holds after every step

    @invariant()
    def the_job_stands_where_the_model_says(self) -> None:
        if self.job_id:
            assert cast.places(self.job_id) == [
                table for table in cast.PLACES if table.endswith(f"_{self.model.place}")
            ]

    @invariant()
    def its_ticket_counts_as_the_model_does(self) -> None:
        if not self.job_id:
            return
        (table,) = cast.places(self.job_id)
        ticket = cast.row(table, self.job_id)
        m = self.model
        assert (ticket["generation"], ticket["attempt"], ticket["crashes"]) == (
            m.generation,
            m.attempt,
            m.crashes,
        )
        assert ticket["redrive_generation"] == m.redrives

    @invariant()
    def no_generation_ended_twice_and_one_completion_at_most(self) -> None:
        history = cast.rows("queue_attempt", self.job_id) if self.job_id else []
        generations = [attempt["generation"] for attempt in history]
        assert len(set(generations)) == len(generations)
        assert sum(attempt["outcome"] == "succeeded" for attempt in history) == self.model.completions <= 1


@pytest.mark.parametrize("examples", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_a_job_lives_as_the_model_says(examples: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
