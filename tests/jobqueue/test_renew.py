"""Renewing: forward only, within the longest run, by the holder of a live lease alone."""

from __future__ import annotations

import pytest

from jobqueue import leases, upkeep
from jobsplatform.errors import AlreadyFinished, LeaseExpired, MaxRuntime, NotFound, StaleGeneration
from tests import cast
from tests.cast import acme, at

pytestmark = pytest.mark.django_db


def test_a_renewal_is_from_now_and_never_shortens() -> None:
    """S11."""
    lease = cast.leased(now=at(0), lease_s=60)
    assert cast.renew(lease, now=at(10), lease_s=30).expires_at == at(60)
    assert cast.renew(lease, now=at(59.9), lease_s=60).expires_at == at(119.9)
    assert cast.row("queue_lease", lease.job_id)["expires_at"] == at(119.9)


def test_a_renewal_without_a_time_takes_the_claim_s() -> None:
    lease = cast.leased(now=at(0), lease_s=45)
    assert cast.renew(lease, now=at(10)).expires_at == at(55)


def test_a_renewal_is_cut_at_the_longest_run() -> None:
    lease = cast.leased(now=at(0), queue=cast.queue("quick", max_run_s=60))
    assert cast.renew(lease, now=at(29), lease_s=50).expires_at == at(60)


def test_a_renewal_at_the_longest_run_is_refused() -> None:
    lease = cast.leased(now=at(0), queue=cast.queue("quick", max_run_s=60), lease_s=60)
    with cast.changes_nothing(lease.job_id), pytest.raises(MaxRuntime):
        cast.renew(lease, now=at(59))


def test_a_renewal_that_asks_for_no_more_than_is_granted_is_taken() -> None:
    lease = cast.leased(now=at(0), queue=cast.queue("quick", max_run_s=60), lease_s=60)
    assert cast.renew(lease, now=at(10), lease_s=30, checkpoint="1").expires_at == at(60)
    assert cast.row("queue_lease", lease.job_id)["checkpoint"] == "1"


def test_a_refused_renewal_keeps_no_checkpoint() -> None:
    """A refused call changes nothing."""
    lease = cast.leased(now=at(0), queue=cast.queue("quick", max_run_s=60), lease_s=60)
    with cast.changes_nothing(lease.job_id), pytest.raises(MaxRuntime):
        cast.renew(lease, now=at(59), checkpoint="1")


def test_a_renewal_keeps_a_checkpoint() -> None:
    lease = cast.leased(now=at(0))
    cast.renew(lease, now=at(1), checkpoint='{"at": 1}')
    cast.renew(lease, now=at(2))
    assert cast.row("queue_lease", lease.job_id)["checkpoint"] == '{"at": 1}'


def test_a_renewal_tells_of_a_requested_cancel() -> None:
    lease = cast.leased(now=at(0))
    assert not cast.renew(lease, now=at(1)).cancel_requested
    cast.cancel(lease.job_id, now=at(2))
    assert cast.renew(lease, now=at(3)).cancel_requested


def test_a_renewal_starts_a_prefetched_job() -> None:
    cast.enqueue()
    lease = cast.claim_one(now=at(0), prefetch=True)
    cast.renew(lease, now=at(1), started=False)
    assert not cast.row("queue_lease", lease.job_id)["is_started"]
    cast.renew(lease, now=at(2))
    assert cast.row("queue_lease", lease.job_id)["is_started"]


def test_a_started_job_stays_started() -> None:
    lease = cast.leased(now=at(0))
    cast.renew(lease, now=at(1), started=False)
    assert cast.row("queue_lease", lease.job_id)["is_started"]


@pytest.mark.parametrize("seconds", [30, 31])
def test_a_lapsed_lease_is_not_renewed(seconds: int) -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(LeaseExpired):
        cast.renew(lease, now=at(seconds))


def test_a_lapsed_lease_that_was_taken_back_is_expired() -> None:
    lease = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    with cast.changes_nothing(lease.job_id), pytest.raises(LeaseExpired):
        cast.renew(lease, now=at(31))


def test_a_late_heartbeat_does_not_steal_the_lease_back() -> None:
    """S5."""
    a = cast.leased(now=at(0))
    upkeep.reap(now=at(30))
    b = cast.claim_one(now=at(32))
    with cast.changes_nothing(b.job_id), pytest.raises(StaleGeneration):
        cast.renew(a, now=at(33))
    assert not cast.complete(b, now=at(34)).replayed


def test_a_finished_job_is_not_renewed() -> None:
    lease = cast.leased(now=at(0))
    cast.complete(lease, now=at(1))
    with pytest.raises(AlreadyFinished):
        cast.renew(lease, now=at(2))


def test_a_foreign_token_does_not_renew() -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id):
        (answer,) = leases.renew([leases.Renew(lease.job_id, 1, b"x" * 16)], now=at(1))
    assert isinstance(answer, StaleGeneration)


def test_another_tenant_s_lease_is_not_there() -> None:
    lease = cast.leased(now=at(0))
    with cast.changes_nothing(lease.job_id), pytest.raises(NotFound):
        cast.renew(lease, now=at(1), scope=cast.mallory())


def test_a_tenant_renews_its_own() -> None:
    lease = cast.leased(now=at(0))
    assert cast.renew(lease, now=at(1), scope=cast.scope_of(acme())).expires_at == at(31)


def test_a_batch_is_answered_in_its_order() -> None:
    cast.enqueue_many(3)
    held = cast.claim(now=at(0), limit=3)
    calls = [leases.Renew(**cast.key_of(lease), lease_s=100 + i) for i, lease in enumerate(reversed(held))]
    calls.insert(1, leases.Renew(12345, 1, b"x" * 16))
    answers = leases.renew(calls, now=at(1))
    assert isinstance(answers[1], NotFound)
    assert [a.expires_at for a in answers if isinstance(a, leases.Renewed)] == [at(101), at(102), at(103)]


def test_two_renewals_of_one_lease_in_a_batch_both_hold() -> None:
    lease = cast.leased(now=at(0))
    calls = [leases.Renew(**cast.key_of(lease), lease_s=50), leases.Renew(**cast.key_of(lease), lease_s=40)]
    assert leases.renew(calls, now=at(1)) == [leases.Renewed(at(51), False)] * 2
