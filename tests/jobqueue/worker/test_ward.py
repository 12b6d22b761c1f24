"""Isolation of jobs that were running side by side when their process died."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from jobqueue.worker import leasetext
from jobqueue.worker import ward as ward_module
from jobqueue.worker.board import RUNNING
from jobqueue.worker.channel import (
    Held,
    Word,
    isolated_text,
    pack_isolated,
    unpack_ids,
    unpack_isolated,
)
from tests.jobqueue.worker.fake import Rig, make_lease
from tests.jobqueue.worker.test_keeper import PlayedExecutor, Stage


def isolate(executor: PlayedExecutor, job_id: int) -> None:
    """The executor has claimed a suspect and hands it on."""
    now = datetime.now(UTC).timestamp()
    held = Held(0, job_id, 2, b"t" * 16, now, 30.0)
    executor.far.send(Word.ISOLATE, pack_isolated(time.monotonic(), held, f"lease {job_id}"))


def crash_with(stage: Stage, *places: int) -> None:
    executor = stage.started[0]
    executor.hold(*places)
    for place in places:
        executor.board.states[place] = RUNNING
    executor.end(-9)
    stage.until(lambda: len(stage.started) == 2)


def test_a_lease_survives_the_way_to_another_process() -> None:
    now = datetime.now(UTC)
    lease = make_lease(3, payload='{"ä":"\\u0041"}', deadline=now, earlier_generations=[1, 2], checkpoint="7")
    lease = replace(lease, token=bytes(range(16)))
    assert leasetext.load(leasetext.dump(lease)) == lease
    held = Held(0, 1 << 50, 7, b"x" * 16, 12.5, 30.0)
    body = pack_isolated(3.5, held, leasetext.dump(lease))
    assert unpack_isolated(body) == (3.5, held)
    assert leasetext.load(isolated_text(body)) == lease


def test_jobs_that_died_together_are_suspected_and_a_lone_one_is_not() -> None:
    stage = Stage()
    crash_with(stage, 0, 1)
    [(word, body)] = list(stage.started[1].far.receive())
    assert (word, sorted(unpack_ids(body))) == (Word.SUSPECTS, [100, 101])
    stage.close()
    stage = Stage()
    crash_with(stage, 0)
    assert list(stage.started[1].far.receive()) == []
    stage.close()


def test_the_engine_hands_suspects_on_and_runs_the_others() -> None:
    from jobqueue.worker.channel import pack_ids

    with Rig() as rig:
        rig.channel.send(Word.SUSPECTS, pack_ids([2, 3]))
        rig.until(lambda: rig.engine._suspects)
        rig.queue.add(5)
        rig.until(lambda: rig.queue.done() == 3)
        rig.until(lambda: rig.words.count(Word.ISOLATE) == 2)
        assert sorted(rig.queue.live) == [2, 3]
        assert not rig.held


def test_a_suspect_runs_in_a_process_of_its_own() -> None:
    stage = Stage()
    crash_with(stage, 0, 1)
    executor = stage.started[1]
    isolate(executor, 101)
    stage.until(lambda: len(stage.started) == 3)
    solo = stage.started[2]
    assert solo.is_solo
    [(word, body)] = list(solo.far.receive())
    assert (word, isolated_text(body)) == (Word.RUN, "lease 101")
    assert [lease.job_id for lease in solo.book] == [101]
    solo.board.states[0] = RUNNING
    solo.end(-9)
    stage.until(lambda: [call.job_id for call in stage.queue.calls["renew"]][-1:] == [101])
    assert not stage.queue.calls["release"]
    assert not stage.keeper._ward
    stage.close()


def test_a_solo_engine_runs_what_it_is_given_claims_nothing_and_leaves() -> None:
    with Rig(solo=True) as rig:
        rig.queue.add()
        lease = rig.queue.claim(1)[0]
        rig.queue.claims.clear()
        held = Held(0, 1, 1, b"t" * 16, lease.claimed_at.timestamp(), 30.0)
        claimed_at = time.monotonic() - 5  # its process took long to start
        rig.channel.send(Word.RUN, pack_isolated(claimed_at, held, leasetext.dump(lease)))
        rig.thread.join(3)
        rig.hear()
        assert rig.queue.done() == 1
        assert rig.queue.claims == []
        assert rig.words == [Word.HELD, Word.DROPPED, Word.LEAVING]


def test_suspects_wait_for_a_process_for_a_while_and_then_go_back(monkeypatch) -> None:
    monkeypatch.setattr(ward_module, "WAIT_S", 0.3)
    stage = Stage()
    [executor] = stage.started
    for job_id in (100, 101, 102, 103):
        isolate(executor, job_id)
    stage.until(lambda: len(stage.started) == 3)
    assert len(stage.keeper._ward.book) == 2
    stage.until(lambda: len(stage.queue.calls["release"]) == 2)
    assert sorted(call.job_id for call in stage.queue.calls["release"]) == [102, 103]
    assert len(stage.keeper._ward.book) == 0
    stage.close()


def test_a_drain_gives_back_who_waits_and_lets_the_solo_job_finish() -> None:
    stage = Stage(grace_s=10)
    [executor] = stage.started
    for job_id in (100, 101, 102):
        isolate(executor, job_id)
    stage.until(lambda: len(stage.started) == 3)
    stage.keeper._signals = 1
    stage.until(lambda: len(stage.queue.calls["release"]) == 1)
    assert [word for word, _ in stage.started[1].far.receive()] == [Word.RUN, Word.DRAIN]
    assert not stage.keeper._is_over()
    for played in stage.started:
        played.far.send(Word.LEAVING)
        played.end(0)
    stage.until(stage.keeper._is_over)
    stage.close()


def test_a_waiting_suspect_that_is_cancelled_goes_back_at_once() -> None:
    stage = Stage()
    stage.queue.cancelled = {102}
    [executor] = stage.started
    for job_id in (100, 101, 102):
        isolate(executor, job_id)
    stage.until(lambda: len(stage.started) == 3)
    [waiting] = stage.keeper._ward.book
    waiting.due_at = 0
    stage.keeper._ward.book.expect(waiting, 0)
    stage.until(lambda: stage.queue.calls["release"])
    assert stage.queue.calls["release"][0].job_id == 102
    stage.close()


def test_leases_that_nobody_knows_of_are_looked_for_after_a_crash() -> None:
    stage = Stage(name="here")
    stage.started[0].end(-9)
    stage.until(lambda: stage.queue.swept == ["here/0.1"])
    stage.until(lambda: stage.queue.swept == ["here/0.1"] * 2, 4)
    stage.close()
