"""A reaper that read before another call committed, and locks after it: what it judges is what it locked.

The statement's own clock is made to wait, between its snapshot and its first row: a function of the same name stands
before the catalogue's on the reaper's search path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

from jobqueue import upkeep
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = 7_411
WAITING_CLOCK = f"""
CREATE SCHEMA waiting;
CREATE FUNCTION waiting.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock({LOCK});
    RETURN '{at(6).isoformat()}'::timestamptz;
END $$
"""


def _reap() -> Counter[str]:
    """One pass at second 6 of a process whose clock waits."""
    connection = connections[cast.SHARD]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path = waiting, pg_catalog, public")
        return upkeep.reap()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET search_path")  # the pool keeps the session
        connection.close()


@contextmanager
def _read_but_not_locked() -> Iterator[list[Counter[str]]]:
    """Inside, a reaper has read what stood before; what it did is there afterwards."""
    done: list[Counter[str]] = []
    with cast.second_session(autocommit=True) as gate, ThreadPoolExecutor(1) as pool:
        gate.execute(WAITING_CLOCK)
        try:
            gate.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
            pass_ = pool.submit(_reap)
            _wait_for_the_reaper(gate)
            yield done
            gate.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
            done.append(pass_.result(30))
        finally:
            gate.execute("SELECT pg_advisory_unlock_all()")
            gate.execute("DROP SCHEMA waiting CASCADE")


def _wait_for_the_reaper(gate: Any) -> None:
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
    for _ in range(3_000):
        if gate.execute(waiting, (LOCK,)).fetchone():
            return
        gate.execute("SELECT pg_sleep(0.01)")
    raise AssertionError("the reaper never read")


def test_a_reaper_that_read_a_lapsed_lease_takes_it_back() -> None:
    """What the others are compared with: the pause itself changes nothing."""
    lease = cast.leased(now=at(0), lease_s=5)
    with _read_but_not_locked() as done:
        pass
    assert (done, cast.place(lease.job_id)) == ([Counter(ready=1)], "readyjob")


def test_a_cancel_after_the_reapers_reading_is_not_lost() -> None:
    lease = cast.leased(now=at(0), lease_s=5)
    with _read_but_not_locked() as done:
        cast.cancel(lease.job_id, now=at(4))
    assert (done, cast.place(lease.job_id)) == ([Counter(cancelled=1)], "result")


def test_a_renewal_after_the_reapers_reading_keeps_the_lease() -> None:
    lease = cast.leased(now=at(0), lease_s=5)
    with _read_but_not_locked() as done:
        cast.renew(lease, now=at(4), lease_s=30)
    assert (done, cast.place(lease.job_id)) == ([Counter()], "lease")


def test_a_completion_after_the_reapers_reading_stays_the_only_end() -> None:
    """S7."""
    lease = cast.leased(now=at(0), lease_s=5)
    with _read_but_not_locked() as done:
        cast.complete(lease, now=at(4))
    assert (done, cast.place(lease.job_id)) == ([Counter()], "result")
    assert [a["outcome"] for a in cast.rows("queue_attempt", lease.job_id)] == ["succeeded"]


def test_the_next_generation_is_out_of_an_old_readers_reach() -> None:
    """S7's second half: ended and claimed again in the pause."""
    lease = cast.leased(now=at(0), lease_s=5)
    with _read_but_not_locked() as done:
        cast.release(lease, now=at(4))
        again = cast.claim_one(now=at(4), lease_s=5)
    assert again.generation == 2
    assert (done, cast.row("queue_lease", lease.job_id)["generation"]) == ([Counter()], 2)
