"""Stores a task's job in the caller's transaction, where the caller has one on a shard, and leaves that as it was.

A job without a request key goes to the shard on which the caller's transaction is open; one with a key goes where
the key's slot is. Two things must not follow the caller's transaction to its end: the planner's settings of our
statements, and the lock on a lane that is made or woken, for which every other enqueue into that lane would wait
(and two transactions could wait for each other). So settings are put back, and lanes are opened by a session of
their own. ADR 0019.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import DatabaseError, connections

from jobqueue import enqueue as intake
from jobqueue import lanes
from jobqueue.enqueue import NewJob, Outcome
from jobqueue.lanes import LaneKey
from jobqueue.limits import LANES_MAX
from jobsplatform import database, sql

LOCK_WAIT = "1s"  # for a lane that another session is making; then the caller's own transaction opens it


def store(job: NewJob) -> Outcome:
    """Accept one job; a refusal is a value. Raises UnknownOutcome, Unavailable."""
    alias = open_shard()
    if alias is None or intake.home_of(job, alias) != alias:
        return intake.enqueue([job])[0]
    with sql.planner_kept(alias):
        _open_lane(job.lane, alias)
        return intake.enqueue([job], within=alias)[0]


def open_shard() -> str | None:
    """The shard on which this thread has a transaction open: the one of the lowest number."""
    for _, alias in sorted(database.aliases().items()):
        if connections[alias].in_atomic_block:
            return alias
    return None


def _open_lane(lane: LaneKey, alias: str) -> None:
    params = lane._asdict()
    if sql.rows("jobqueue/lane_awake", params, alias=alias):
        return
    try:
        with _second_session(alias) as session, session.transaction():
            session.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
            lanes.made([lane], LANES_MAX, session)
            sql.send(session, "jobqueue/lane_wake", params)
    except (psycopg.Error, DatabaseError):
        return  # the enqueue does it itself, and others may have to wait for its end


@contextmanager
def _second_session(alias: str) -> Iterator[psycopg.Connection[sql.Row]]:
    """A connection beside the caller's, from the same pool."""
    wrapper = connections[alias].copy()
    try:
        wrapper.ensure_connection()
        yield wrapper.connection
    finally:
        wrapper.close()
