"""How much an executor claims."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobqueue.worker.pace import Pace


def test_an_unmeasured_worker_claims_one_job_a_thread() -> None:
    assert Pace(8).wanted(queued=0, running=0, slow=0, room=2_048) == 8
    assert Pace(8).wanted(queued=1, running=5, slow=0, room=2_048) == 2
    assert Pace(8).wanted(queued=0, running=8, slow=0, room=2_048) == 0


def test_quick_jobs_double_the_claim_up_to_the_limit() -> None:
    pace = Pace(8)
    pace.learn(8, 8 * 10e-6)
    sizes = []
    for _ in range(8):
        want = pace.wanted(queued=0, running=0, slow=0, room=2_048)
        pace.claimed(want)
        sizes.append(want)
    assert sizes == [8, 16, 32, 64, 128, 256, 500, 500]


def test_jobs_of_20_ms_are_buffered_for_a_tenth_of_a_second() -> None:
    pace = Pace(8)
    pace.learn(100, 100 * 0.02)
    for _ in range(10):
        pace.claimed(pace.wanted(queued=0, running=8, slow=0, room=2_048))
    assert pace.wanted(queued=0, running=8, slow=0, room=2_048) == 40


def test_the_buffer_is_filled_again_when_half_empty() -> None:
    pace = Pace(8)
    pace.learn(100, 100 * 0.02)
    for _ in range(10):
        pace.claimed(40)
    assert pace.wanted(queued=30, running=8, slow=0, room=2_048) == 0
    assert pace.wanted(queued=20, running=8, slow=0, room=2_048) == 20


def test_threads_that_are_busy_with_slow_jobs_do_not_count() -> None:
    pace = Pace(8)
    pace.learn(100, 100 * 0.02)
    for _ in range(10):
        pace.claimed(40)
    assert pace.wanted(queued=0, running=8, slow=8, room=2_048) == 0
    assert pace.wanted(queued=0, running=8, slow=6, room=2_048) == 10


def test_one_slow_job_takes_the_buffer_down() -> None:
    pace = Pace(2)
    pace.learn(1_000, 1_000 * 0.001)
    for _ in range(10):
        pace.claimed(200)
    pace.learn(1, 60)
    assert pace.wanted(queued=0, running=1, slow=0, room=2_048) == 1


@given(
    st.integers(1, 64),
    st.floats(0, 100),
    st.integers(0, 600),
    st.integers(0, 64),
    st.integers(0, 64),
    st.integers(0, 2_048),
)
def test_never_more_than_there_is_room_for(concurrency, mean, queued, running, slow, room) -> None:
    pace = Pace(concurrency)
    running, slow = min(running, concurrency), min(slow, running, concurrency)
    pace.learn(1, mean)
    for _ in range(5):
        pace.claimed(500)
    want = pace.wanted(queued=queued, running=running, slow=slow, room=room)
    assert 0 <= want <= min(room, 500)
