"""A restored shard begins a new epoch: what was given out after the moment it was restored to is refused."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from jobqueue import fsck, restoring
from jobsplatform.errors import JobsPlatformError, NotFound
from tenants.models import AuditEntry
from tests import cast

pytestmark = pytest.mark.django_db

STEP = restoring.GENERATIONS_SKIPPED


def restore(**options: int) -> restoring.Epoch:
    return restoring.restored(0, actor=cast.OPS, reason="disk lost", now=cast.at(10), **options)


def test_leases_of_the_past_are_taken_back_uncharged_and_their_holders_refused() -> None:
    lease = cast.leased()
    epoch = restore()
    assert (epoch.leases, epoch.jobs) == (1, 1)
    row = cast.row("queue_readyjob", lease.job_id)
    assert (row["attempt"], row["crashes"], row["lapses"]) == (0, 0, 1)
    with pytest.raises(JobsPlatformError) as refused:
        cast.complete(lease, now=cast.at(11))
    assert refused.value.code in ("stale_generation", "lease_expired")


def test_generations_go_on_above_all_that_can_have_been_handed_out() -> None:
    waiting = cast.leased()
    cast.fail(waiting, now=cast.at(1))
    ready = cast.enqueue()
    dead = cast.buried(priority=0)
    assert restore().jobs == 3
    for table, job_id, before in (
        ("queue_scheduledjob", waiting.job_id, 1),
        ("queue_readyjob", ready, 0),
        ("dlq_deadletter", dead, 1),
    ):
        assert cast.row(table, job_id)["generation"] == before + STEP
    assert cast.claim_one(now=cast.at(11)).generation == STEP + 1


def test_new_ids_begin_beyond_all_that_can_have_been_issued() -> None:
    before = cast.enqueue()
    epoch = restore()
    after = cast.enqueue(now=cast.at(11))
    assert after == epoch.first_id == before + restoring.IDS_SKIPPED + 1


def test_batches_cover_every_job_once_whatever_lies_where() -> None:
    for number in range(13):
        cast.enqueue(delay_s=3_600 if number % 3 else None)
    assert restore(batch=2).jobs == 13
    generations = cast.read(
        "SELECT generation FROM queue_readyjob UNION ALL SELECT generation FROM queue_scheduledjob"
    )
    assert {row[0] for row in generations} == {STEP}


def test_a_cancel_that_was_asked_for_is_kept() -> None:
    lease = cast.leased()
    cast.cancel(lease.job_id, now=cast.at(1))
    restore()
    assert cast.place(lease.job_id) == "result"


def test_a_lease_that_had_lapsed_already_counts_too() -> None:
    cast.leased(lease_s=1, now=cast.at(0) - timedelta(minutes=5))
    assert restore().leases == 1


def test_what_is_done_stays_done_and_fsck_finds_the_shard_whole() -> None:
    cast.complete(cast.leased(), now=cast.at(1))
    cast.leased()
    cast.buried(priority=0)
    restore()
    assert list(fsck.check()) == []


def test_a_repeat_goes_further_up_and_harms_nothing() -> None:
    job_id = cast.enqueue()
    restore()
    restore()
    assert cast.row("queue_readyjob", job_id)["generation"] == 2 * STEP


def test_it_is_audited_with_its_reason() -> None:
    restore()
    entry = AuditEntry.objects.get(action="shard.restored")
    assert (entry.target, entry.reason, entry.actor) == ("shard:0", "disk lost", cast.OPS)


def test_an_unknown_shard_is_refused() -> None:
    with pytest.raises(NotFound):
        restoring.restored(7, actor=cast.OPS)


def test_the_command_says_what_it_did() -> None:
    cast.enqueue()
    out = StringIO()
    call_command("restored", "0", "--reason", "drill", stdout=out)
    assert "1 jobs raised, new ids from 0-" in out.getvalue()
