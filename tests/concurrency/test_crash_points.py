"""Where a process may die: after every statement of every verb its session is ended, and the job stands in one place.

A point is the session's end right after the n-th statement of a verb, so before the next one or before COMMIT.
Afterwards the verb is simply called again: what had not happened happens, what had is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.db import connections

from jobqueue import fsck, upkeep
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobsplatform import sql
from jobsplatform.errors import JobsPlatformError, Unavailable, UnknownOutcome
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db(transaction=True)

POINTS_MAX = 40  # no verb has more


class Crash:
    """Ends the verb's own session right after its n-th statement (0: never), and counts the statements."""

    def __init__(self, after: int) -> None:
        self.after, self.seen, self.struck = after, 0, False

    def passed(self, pid: int) -> None:
        self.seen += 1
        if self.seen == self.after:
            self.struck = True
            with cast.second_session(autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [pid])
                while (
                    other.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is not None
                ):
                    pass


@contextmanager
def crashing(after: int) -> Iterator[Crash]:
    crash = Crash(after)
    run, send = sql._run, sql.send

    def running(statement: str, params: Any, alias: str, **more: Any) -> Any:
        connections[alias].ensure_connection()
        raw = connections[alias].connection
        found = run(statement, params, alias, **more)
        if alias == cast.SHARD:
            crash.passed(raw.info.backend_pid)
        return found

    def sending(connection: Any, statement: str, params: Any) -> Any:
        cursor = send(connection, statement, params)
        if connection is connections[cast.SHARD].connection:
            crash.passed(connection.info.backend_pid)  # in a pipeline: sent, perhaps not yet received
        return cursor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "_run", running)
        patch.setattr(sql, "send", sending)
        yield crash
    connections[cast.SHARD].close()  # it may have ended after the verb's last word


@dataclass(frozen=True)
class Verb:
    """Makes a job and gives back its id and the call to be cut; `leads_to` are the places where it then may stand."""

    prepare: Callable[[], tuple[int, Callable[[], Any]]]
    before: str
    after: str


def _leased(call: Callable[..., Any], **more: Any) -> Callable[[], tuple[int, Callable[[], Any]]]:
    options = {
        name: more.pop(name) for name in list(more) if name in ("max_attempts", "queue_settings", "deadline")
    }

    def prepare() -> tuple[int, Callable[[], Any]]:
        settings = options.get("queue_settings")
        queue = cast.queue("grim", **settings) if settings else cast.queue()
        fields = {name: value for name, value in options.items() if name != "queue_settings"}
        lease = cast.leased(now=at(0), queue=queue, **fields)
        return lease.job_id, lambda: call(lease, now=at(1), **more)

    return prepare


def _waiting(call: Callable[[int], Any], **fields: Any) -> Callable[[], tuple[int, Callable[[], Any]]]:
    def prepare() -> tuple[int, Callable[[], Any]]:
        job_id = cast.enqueue(now=at(0), **fields)
        return job_id, lambda: call(job_id)

    return prepare


def _lapsed(**options: Any) -> Callable[[], tuple[int, Callable[[], Any]]]:
    def prepare() -> tuple[int, Callable[[], Any]]:
        lease = cast.leased(now=at(0), queue=cast.queue("grim", **options))
        return lease.job_id, lambda: upkeep.reap(now=at(60))

    return prepare


def _tried_past_deadline() -> tuple[int, Callable[[], Any]]:
    lease = cast.leased(now=at(0), deadline=at(50))
    cast.release(lease, now=at(1))
    return lease.job_id, lambda: upkeep.expire(now=at(60))


def _dead(call: Callable[[int], Any]) -> Callable[[], tuple[int, Callable[[], Any]]]:
    def prepare() -> tuple[int, Callable[[], Any]]:
        job_id = cast.buried()
        return job_id, lambda: call(job_id)

    return prepare


VERBS: dict[str, Verb] = {
    "promote": Verb(_waiting(lambda _: upkeep.promote(now=at(60)), delay_s=5), "scheduledjob", "readyjob"),
    "claim": Verb(_waiting(lambda _: cast.claim(now=at(1))), "readyjob", "lease"),
    "claim with a key": Verb(_waiting(lambda _: cast.claim(now=at(1), claim_key="c")), "readyjob", "lease"),
    "renew": Verb(_leased(cast.renew), "lease", "lease"),
    "complete": Verb(_leased(cast.complete), "lease", "result"),
    "fail to retry": Verb(_leased(cast.fail), "lease", "scheduledjob"),
    "fail to dead": Verb(_leased(cast.fail, max_attempts=1), "lease", "deadletter"),
    "release": Verb(_leased(cast.release), "lease", "readyjob"),
    "release with delay": Verb(_leased(cast.release, delay_s=9), "lease", "scheduledjob"),
    "reap to ready": Verb(_lapsed(), "lease", "readyjob"),
    "reap to dead": Verb(_lapsed(max_crashes=1), "lease", "deadletter"),
    "expire": Verb(_waiting(lambda _: upkeep.expire(now=at(60)), deadline=at(50)), "readyjob", "result"),
    "expire to dead": Verb(_tried_past_deadline, "readyjob", "deadletter"),
    "cancel": Verb(_waiting(lambda job_id: cast.cancel(job_id, now=at(1))), "readyjob", "result"),
    "correct": Verb(
        _dead(lambda job_id: cast.correct(job_id, idempotency_key="k")), "deadletter", "deadletter"
    ),
    "redrive": Verb(_dead(lambda job_id: cast.redriven(job_id, redrive_key="r")), "deadletter", "readyjob"),
}
SEVERAL = {
    "claim",
    "claim with a key",
    "fail to dead",
    "reap to dead",
    "expire to dead",
    "correct",
    "redrive",
}


@pytest.mark.parametrize("name", VERBS)
def test_wherever_a_verb_is_cut_the_job_stands_in_one_place(name: str) -> None:
    """S157."""
    verb = VERBS[name]
    points = 0
    for after in range(1, POINTS_MAX):
        job_id, call = verb.prepare()
        before = cast.everything_about(job_id)
        with crashing(after) as crash:
            failed = _outcome(call)
        assert cast.place(job_id) in (verb.before, verb.after)
        if failed is not None:
            assert isinstance(failed, (Unavailable, UnknownOutcome)), failed
            if isinstance(failed, Unavailable):
                assert cast.everything_about(job_id) == before, "nothing was done, says the answer"
            assert _outcome(call) is None, "a repeat must do"
        assert cast.place(job_id) == verb.after
        assert list(fsck.check()) == []
        cast.forget_job(job_id)
        if not crash.struck:
            break
        points += 1
    assert points >= (2 if name in SEVERAL else 1)


def _outcome(call: Callable[[], Any]) -> JobsPlatformError | None:
    try:
        call()
    except JobsPlatformError as error:
        return error
    return None


def test_leases_of_one_queue_are_not_lost_when_the_next_one_fails() -> None:
    """A claim over queues is one transaction a queue: what is made is given out."""
    for name in ("a", "b"):
        cast.enqueue_many(3, queue=cast.queue(name), now=at(0))
    for after in range(1, POINTS_MAX):
        with crashing(after) as crash:
            try:
                found = cast.claim("a", "b", now=at(1), limit=6)
            except JobsPlatformError:
                found = []
        held = {job_id for (job_id,) in cast.read("SELECT job_id FROM queue_lease")}
        assert held == {lease.job_id for lease in found}
        for lease in found:
            cast.release(lease, now=at(1))
        if not crash.struck:
            break
    assert len(found) == 6


def test_wherever_an_enqueue_is_cut_a_repeat_finds_or_makes_the_one_job() -> None:
    """S41 by verbs: the key decides, whatever the first answer was."""
    for after in range(1, POINTS_MAX):
        job = cast.new_job(request_key=f"k-{after}", kind=f"kind-{after}")
        with crashing(after) as crash:
            failed = _outcome(partial(enqueue_jobs, [job]))
        again = cast.accepted(enqueue_jobs([job])[0])
        assert failed is not None or again.replayed
        assert cast.read("SELECT count(*) FROM queue_job WHERE request_key = %s", [f"k-{after}"]) == [(1,)]
        assert cast.place(again.job_id) == "readyjob"
        if not crash.struck:
            break
    else:
        raise AssertionError("an enqueue that never ends")
    assert after > 1
    assert list(fsck.check()) == []


@pytest.mark.parametrize("verb", ["fail", "release", "complete"])
def test_a_session_that_ends_inside_a_statement_undoes_it(verb: str) -> None:
    """The lease's row is deleted and the next place not yet written: another session holds what the statement needs."""
    lease = cast.leased(now=at(0))
    before = cast.everything_about(lease.job_id)
    cast.read("UPDATE queue_lane SET is_active = false RETURNING 1")
    with cast.second_session() as other:
        other.execute("LOCK TABLE queue_attempt IN EXCLUSIVE MODE")

        def end_it() -> None:
            query = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            for _ in range(1_000):
                if found := cast.read(query):
                    cast.read("SELECT pg_terminate_backend(%s, 5000)", [found[0][0]])
                    return
            raise AssertionError("nobody waited")

        answers = cast.together(lambda: getattr(cast, verb)(lease, now=at(1)), end_it)
    assert isinstance(answers[0], (Unavailable, UnknownOutcome)), answers
    assert cast.everything_about(lease.job_id) == before
    getattr(cast, verb)(lease, now=at(1))


def test_a_session_that_ends_while_a_claim_waits_leaves_all_ready() -> None:
    ids = cast.enqueue_many(5, now=at(0))
    with cast.second_session() as other:
        other.execute("LOCK TABLE queue_lanedelta IN EXCLUSIVE MODE")

        def end_it() -> None:
            query = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            for _ in range(1_000):
                if found := cast.read(query):
                    cast.read("SELECT pg_terminate_backend(%s, 5000)", [found[0][0]])
                    return
            raise AssertionError("nobody waited")

        answers = cast.together(lambda: cast.claim(now=at(1), limit=5), end_it)
    assert isinstance(answers[0], (Unavailable, UnknownOutcome)), answers  # the commit was sent with the take
    assert [cast.place(job_id) for job_id in ids] == ["readyjob"] * 5
    assert len(cast.claim(now=at(1), limit=5)) == 5
