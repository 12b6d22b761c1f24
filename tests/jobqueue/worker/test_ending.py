"""`job.transaction()`: a handler's effect in the job's database and the job's completion, together or neither."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.transaction import TransactionManagementError

from jobqueue import LeaseLost, Permanent, fsck, upkeep
from jobqueue.claiming import Lease
from jobqueue.worker import leasetext
from jobqueue.worker.context import JobContext
from tests import cast
from tests.cast import SHARD
from tests.jobqueue.worker.conftest import Platform

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[3]
COMMIT_S = 0.03  # a commit takes so long at least, so that many deaths fall into it


@pytest.fixture
def effects(transactional_db: None) -> Iterator[None]:
    """A table of effects on the shard, whose commits are slow; gone afterwards."""
    with connections[SHARD].cursor() as cursor:
        cursor.execute(
            f"""
            CREATE TABLE effect (job_id bigint, generation int);
            CREATE FUNCTION effect_slow() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep({COMMIT_S}); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER effect_slow AFTER INSERT ON effect
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION effect_slow();
            """
        )
    yield
    with connections[SHARD].cursor() as cursor:
        cursor.execute("DROP TABLE effect; DROP FUNCTION effect_slow()")


class Told:
    """Stands where the engine stands, and remembers what it was told."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def save_checkpoint(self, job: JobContext, text: str) -> None: ...

    def note_done(self, job: JobContext) -> None:
        self.done.append(job.lease.job_id)

    def queue_name(self, queue_id: int) -> str:
        return ""

    def tenant_slug(self, tenant_id: int) -> str:
        return ""


def leased(**changes: Any) -> Lease:
    return cast.leased(now=None, **changes)


def context(lease: Lease) -> JobContext:
    return JobContext(lease, 0, 0.0, Told())


def act(job: JobContext) -> None:
    cast.read("INSERT INTO effect VALUES (%s, %s) RETURNING 1", [job.lease.job_id, job.generation])


def effects_of(job_id: int) -> int:
    return int(cast.read("SELECT count(*) FROM effect WHERE job_id = %s", [job_id])[0][0])


# One attempt


def test_the_effect_and_the_completion_are_both_there(effects: None) -> None:
    job = context(leased())
    with job.transaction() as ending:
        act(job)
        ending.result = {"paid": True}
    assert (effects_of(job.lease.job_id), cast.place(job.lease.job_id)) == (1, "result")
    assert cast.row("queue_result", job.lease.job_id)["body"] == '{"paid":true}'


def test_the_engine_is_told_that_the_job_is_done(effects: None) -> None:
    lease, told = leased(), Told()
    job = JobContext(lease, 0, 0.0, told)
    with job.transaction():
        pass
    assert (job.is_done, told.done) == (True, [lease.job_id])


def test_a_block_that_raises_leaves_neither(effects: None) -> None:
    job = context(leased())

    def fails() -> None:
        with job.transaction():
            act(job)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (effects_of(job.lease.job_id), cast.place(job.lease.job_id)) == (0, "lease")
    assert not job.is_done


def test_a_lost_lease_takes_the_effect_back(effects: None) -> None:
    lease = leased()
    upkeep.reap(now=lease.expires_at + timedelta(seconds=1))
    job = context(lease)
    with pytest.raises(LeaseLost), job.transaction():
        act(job)
    assert (effects_of(lease.job_id), cast.place(lease.job_id)) == (0, "readyjob")


def test_a_lease_that_another_generation_holds_takes_the_effect_back(effects: None) -> None:
    old = leased()
    upkeep.reap(now=old.expires_at + timedelta(seconds=1))
    new = cast.claim_one(now=None)
    with pytest.raises(LeaseLost), context(old).transaction():
        act(context(old))
    assert (effects_of(old.job_id), cast.place(old.job_id)) == (0, "lease")
    cast.complete(new)


def test_an_effect_is_not_done_twice_by_one_attempt(effects: None) -> None:
    """The same call again would be answered as replayed: that must not commit a second effect."""
    lease = leased()
    with context(lease).transaction():
        act(context(lease))
    with pytest.raises(LeaseLost, match="completed before"), context(lease).transaction():
        act(context(lease))
    assert effects_of(lease.job_id) == 1


def test_a_result_that_cannot_be_stored_takes_the_effect_back(effects: None) -> None:
    job = context(leased())

    def returns_no_json() -> None:
        with job.transaction() as ending:
            act(job)
            ending.result = object()

    with pytest.raises(Permanent, match="invalid_result"):
        returns_no_json()
    assert (effects_of(job.lease.job_id), cast.place(job.lease.job_id)) == (0, "lease")


def test_a_swallowed_database_error_is_no_success(effects: None) -> None:
    """Django would roll back at the end of the block without a word."""
    job = context(leased())

    def swallows() -> None:
        with job.transaction():
            act(job)
            with suppress(DatabaseError), transaction.atomic(using=SHARD, savepoint=False):
                cast.read("SELECT 1 / 0")

    with pytest.raises(TransactionManagementError):
        swallows()
    assert (effects_of(job.lease.job_id), cast.place(job.lease.job_id), job.is_done) == (0, "lease", False)


def test_a_transaction_around_it_is_refused(effects: None) -> None:
    job = context(leased())
    with transaction.atomic(using=SHARD), pytest.raises(RuntimeError), job.transaction():
        act(job)
    assert cast.place(job.lease.job_id) == "lease"


def test_a_job_has_one_transaction(effects: None) -> None:
    job = context(leased())
    with job.transaction():
        pass
    with pytest.raises(RuntimeError, match="is done"), job.transaction():
        act(job)


def test_a_commit_hook_that_fails_undoes_nothing(effects: None) -> None:
    job = context(leased())
    with job.transaction() as ending:
        act(job)
        transaction.on_commit(lambda: 1 / 0, using=ending.alias)
    assert (effects_of(job.lease.job_id), cast.place(job.lease.job_id), job.is_done) == (1, "result", True)


def test_an_answer_to_the_commit_that_is_lost_is_looked_up(
    effects: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has committed; the connection ends before it can say so."""
    job = context(leased())
    wrapper = connections[SHARD]
    commit = wrapper._commit  # type: ignore[attr-defined]

    def cut() -> Any:
        commit()
        with cast.second_session(autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [wrapper.connection.info.backend_pid])
        return wrapper.connection.execute("SELECT 1")

    monkeypatch.setattr(wrapper, "_commit", lambda: _as_django(cut))
    with job.transaction():
        act(job)
    monkeypatch.undo()
    assert (job.is_done, effects_of(job.lease.job_id), cast.place(job.lease.job_id)) == (True, 1, "result")


def test_a_connection_that_is_lost_before_the_commit_leaves_neither(
    effects: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobsplatform.errors import UnknownOutcome

    job = context(leased())
    wrapper = connections[SHARD]

    def cut() -> Any:
        with cast.second_session(autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [wrapper.connection.info.backend_pid])
        return wrapper.connection.execute("SELECT 1")

    monkeypatch.setattr(wrapper, "_commit", lambda: _as_django(cut))
    with pytest.raises(UnknownOutcome), job.transaction():
        act(job)
    monkeypatch.undo()
    assert (job.is_done, effects_of(job.lease.job_id), cast.place(job.lease.job_id)) == (False, 0, "lease")


def _as_django(action: Any) -> Any:
    with connections[SHARD].wrap_database_errors:
        return action()


# Killed -9 at every point


class Mill:
    """Forks an attempt for each order; see `effects/mill.py`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.jobqueue.worker.effects.mill"],
            env=environment | {"PYTHONPATH": f"{ROOT}:{ROOT / 'queue'}"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, lease: Lease, die: dict[str, float] | None) -> SimpleNamespace:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"lease": leasetext.dump(lease), "die": die}), file=self._process.stdin, flush=True)
        return SimpleNamespace(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture
def mill(process_environment: dict[str, str]) -> Iterator[Mill]:
    mill = Mill(process_environment)
    yield mill
    mill.close()


BOTH = """
    SELECT (SELECT count(*) FROM effect WHERE job_id = %(job)s),
        (SELECT count(*) FROM queue_result WHERE job_id = %(job)s AND outcome = 'succeeded')
"""


def together_or_neither(job_id: int) -> bool:
    """Whether the job is done, once the killed attempt's session has ended. Both are read at one instant, always."""
    query = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'"""
    has_ended = False
    while True:
        (pair,) = cast.read(BOTH.replace("%(job)s", str(job_id)))
        assert pair in ((0, 0), (1, 1)), f"{pair[0]} effects, {pair[1]} completions"
        if has_ended:
            return bool(pair == (1, 1))
        has_ended = cast.read(query) == [(0,)]
        time.sleep(0.001)


def kill_and_finish(mill: Mill, die: dict[str, float]) -> tuple[bool, bool]:
    """Kill the first attempt as `die` says; whether it did, and whether all was committed. Then finish."""
    lease = leased()
    said = mill.run(lease, die)
    was_done = together_or_neither(lease.job_id)
    if not was_done:
        upkeep.reap(now=datetime.now(UTC) + timedelta(seconds=600))
        again = cast.claim_one(now=None)
        assert (again.job_id, again.generation) == (lease.job_id, lease.generation + 1)
        late = mill.run(lease, None)
        assert "LeaseLost" in late.error, "the old generation can do nothing"
        assert mill.run(again, None).error is None
    assert together_or_neither(lease.job_id)
    return said.signal == 9, was_done


def kill_at_points(mill: Mill, count: int) -> None:
    """Half of the deaths before a line of the transaction's code, spread evenly; half around its commit."""
    lines = mill.run(leased(), None).lines
    assert lines >= count // 2
    half = count // 2
    plans: list[dict[str, float]] = [{"line": 1 + n * (lines - 1) // (half - 1)} for n in range(half)]
    plans += [{"after_s": n * (COMMIT_S * 1.5) / (count - count // 2)} for n in range(count - count // 2)]
    ends = [kill_and_finish(mill, plan) for plan in plans]
    at_lines = ends[: count // 2]
    assert all(killed for killed, _ in at_lines)
    assert {done for _, done in at_lines} == {True, False}, "deaths fell on both sides of the commit"
    assert sum(killed for killed, _ in ends) >= count * 3 // 4
    assert list(fsck.check()) == []


def test_an_attempt_killed_anywhere_leaves_both_or_neither(effects: None, mill: Mill) -> None:
    kill_at_points(mill, 12)


@pytest.mark.slow
def test_200_kills_leave_both_or_neither(effects: None, mill: Mill) -> None:
    kill_at_points(mill, 200)


# In a worker


def test_what_a_handler_does_after_its_transaction_counts_no_more(platform: Platform, effects: None) -> None:
    """It goes on for three leases: nobody takes the job back, nothing is told twice, its exception is nobody's."""
    platform.set(lease_s=1)
    [job] = platform.enqueue("test.effect", s=3)
    platform.worker()
    platform.until(lambda: platform.lines("after"), 60)
    [other] = platform.enqueue("test.note")
    platform.until(lambda: platform.job(other).state == "succeeded", 60)
    assert (platform.job(job).state, effects_of(job), platform.result(job)) == (
        "succeeded",
        1,
        {"in": "time"},
    )
    assert [attempt.outcome for attempt in platform.attempts(job)] == ["succeeded"]
    assert platform.lines("lost") == []


def test_a_process_that_dies_after_the_transaction_is_no_crash_of_the_job(
    platform: Platform, effects: None
) -> None:
    platform.set(lease_s=2)
    [job] = platform.enqueue("test.effect", s=0.5, kill=True)
    platform.worker()
    platform.until(lambda: platform.lines("start"), 60)
    platform.until(lambda: platform.job(job).state == "succeeded", 60)
    [other] = platform.enqueue("test.note")
    platform.until(lambda: platform.job(other).state == "succeeded", 60)
    starts = [line for line in platform.lines("start") if line[0] == platform.job_name(job)]
    assert (platform.job(job).crashes, effects_of(job), len(starts)) == (0, 1, 1)
