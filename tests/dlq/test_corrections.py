"""Corrections: new versions of a dead letter's payload, audited; the original stays."""

from __future__ import annotations

import hashlib

import pytest

from dlq import reads
from jobqueue import reads as job_reads
from jobqueue.types import FLEET
from jobsplatform.errors import Invalid, KeyConflict, NotDead, NotFound
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db

DAY = 24 * 3_600


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_a_correction_is_a_version_with_both_hashes() -> None:
    job_id = cast.buried(payload='"old"')
    done = cast.correct(job_id, payload='"new"')
    assert (done.version, bytes(done.old_hash or b""), done.new_hash) == (1, _hash('"old"'), _hash('"new"'))


def test_the_original_stays() -> None:
    job_id = cast.buried(payload='"old"')
    cast.correct(job_id, payload='"new"')
    assert cast.row("queue_job", job_id)["payload"] == '"old"'


def test_a_second_correction_follows_the_first() -> None:
    job_id = cast.buried(payload='"old"')
    cast.correct(job_id, payload='"new"')
    done = cast.correct(job_id, payload='"newer"')
    assert (done.version, bytes(done.old_hash or b"")) == (2, _hash('"new"'))


def test_a_corrected_payload_is_what_the_next_attempt_gets() -> None:
    job_id = cast.buried(payload='"old"', error_class="permanent")
    cast.correct(job_id, payload='"new"')
    cast.redriven(job_id, now=at(5))
    lease = cast.claim_one(now=at(6))
    assert (lease.payload, lease.payload_ref) == ('"new"', None)


def test_a_payload_may_be_corrected_to_a_reference() -> None:
    job_id = cast.buried(payload='"old"', error_class="permanent")
    done = cast.correct(job_id, payload=None, payload_ref="s3://bucket/fixed")
    assert done.new_hash is None
    cast.redriven(job_id, now=at(5))
    lease = cast.claim_one(now=at(6))
    assert (lease.payload, lease.payload_ref) == (None, "s3://bucket/fixed")


def test_a_job_corrected_to_a_reference_shows_no_old_payload() -> None:
    job_id = cast.buried(payload='"old"')
    cast.correct(job_id, payload=None, payload_ref="s3://bucket/fixed")
    cast.redriven(job_id, now=at(5))
    view = job_reads.job(job_id, scope=FLEET)
    assert (view.payload_bytes, view.payload_sha256, view.payload_ref) == (None, None, "s3://bucket/fixed")


def test_a_corrected_job_shows_the_payload_that_it_would_run_with() -> None:
    job_id = cast.buried(payload='"old"')
    cast.correct(job_id, payload='"new"')
    shown = {
        job_reads.job(job_id, scope=FLEET).payload_sha256,
        reads.dead_letter(job_id, scope=FLEET).payload_sha256,
    }
    assert shown == {_hash('"new"').hex()}
    assert job_reads.payload(job_id, scope=FLEET) == ('"new"', None)


def test_a_reference_may_be_corrected_to_a_payload() -> None:
    job_id = cast.buried(payload=None, payload_ref="s3://bucket/lost")
    done = cast.correct(job_id, payload="1")
    assert (done.old_hash, done.new_hash) == (None, _hash("1"))
    assert job_reads.payload(job_id, scope=FLEET) == ("1", None)


def test_a_correction_is_audited_with_its_hashes() -> None:
    job_id = cast.buried(payload='"old"')
    cast.correct(job_id, payload='"new"', note="amount was negative")
    entry = "SELECT actor, reason, target, before_hash, after_hash FROM tenants_auditentry WHERE action = 'job.correct'"
    ((actor, reason, target, before, after),) = cast.read(entry)
    assert (actor, reason, target) == (cast.OPS, "amount was negative", f"job:0-{job_id}")
    assert (bytes(before), bytes(after)) == (_hash('"old"'), _hash('"new"'))


def test_the_desk_lists_versions_oldest_first() -> None:
    job_id = cast.buried()
    cast.correct(job_id, note="one")
    cast.correct(job_id, note="two")
    views = reads.corrections([job_id])[job_id]
    assert [(view.version, view.note, view.author) for view in views] == [
        (1, "one", cast.OPS),
        (2, "two", cast.OPS),
    ]


@pytest.mark.parametrize("where", ["ready", "running", "succeeded"])
def test_only_a_dead_letter_is_corrected(where: str) -> None:
    job_id = cast.enqueue(now=at(0))
    if where != "ready":
        lease = cast.claim_one(now=at(0))
        if where == "succeeded":
            cast.complete(lease, now=at(1))
    with cast.changes_nothing(job_id), pytest.raises(NotDead):
        cast.correct(job_id)
    assert cast.audited("job.correct") == 0


def test_a_foreign_dead_letter_and_an_absent_one_look_alike() -> None:
    job_id = cast.buried()
    with cast.changes_nothing(job_id):
        for wanted in (job_id, job_id + 1_000_000, 9 << 48 | 1):
            with pytest.raises(NotFound):
                cast.correct(wanted, scope=cast.mallory())


def test_a_repeat_with_the_same_key_is_answered_again() -> None:
    job_id = cast.buried()
    first = cast.correct(job_id, idempotency_key="k")
    again = cast.correct(job_id, idempotency_key="k")
    assert (again.version, again.replayed) == (first.version, True)
    assert len(cast.rows("dlq_correction", job_id)) == 1


def test_a_repeat_is_answered_after_the_redrive_too() -> None:
    job_id = cast.buried()
    cast.correct(job_id, idempotency_key="k")
    cast.redriven(job_id)
    assert cast.correct(job_id, idempotency_key="k").replayed


def test_a_repeat_with_another_body_conflicts() -> None:
    job_id = cast.buried()
    cast.correct(job_id, idempotency_key="k")
    with cast.changes_nothing(job_id), pytest.raises(KeyConflict):
        cast.correct(job_id, idempotency_key="k", payload="2")


def test_a_key_is_remembered_for_a_day() -> None:
    job_id = cast.buried()
    first = cast.correct(job_id, now=at(10), idempotency_key="k")
    assert cast.correct(job_id, now=at(10 + DAY - 1), idempotency_key="k").replayed
    later = cast.correct(job_id, now=at(10 + DAY), idempotency_key="k", payload="2")
    assert (first.version, later.version, later.replayed) == (1, 2, False)
    assert cast.correct(job_id, now=at(10 + DAY), idempotency_key="k", payload="2").replayed


@pytest.mark.parametrize("payload", ["{", "NaN", '{"a": 1, "a": 2}', "[" + "1," * 70_000 + "1]"])
def test_a_payload_that_no_job_can_have_is_refused(payload: str) -> None:
    job_id = cast.buried()
    with cast.changes_nothing(job_id), pytest.raises(Invalid) as refused:
        cast.correct(job_id, payload=payload)
    assert refused.value.errors[0].pointer == "/payload"


def test_a_correction_of_an_earlier_life_does_not_count() -> None:
    job_id = cast.buried(error_class="permanent")
    cast.correct(job_id)
    cast.redriven(job_id, now=at(5))
    cast.fail(cast.claim_one(now=at(6)), now=at(7), error_class="permanent")
    assert reads.dead_letter(job_id, scope=FLEET).correction_required
