"""Dead letters: what leaves the schedule keeps its ticket, its reason and its last error."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from dlq import quarantine, reads
from dlq.reads import DeadFilter
from jobqueue import upkeep
from jobqueue.types import FLEET
from jobsplatform.errors import NotFound
from tests import cast
from tests.cast import at, globex

pytestmark = pytest.mark.django_db

TRACEBACK = (
    'Traceback (most recent call last):\n  File "{path}/jobs.py", line 3, in run\n    do()\n'
    '  File "{path}/billing.py", line {line}, in {function}\n    raise ValueError\n{said}'
)
REASONS = ["invalid", "exhausted", "uncertain", "poison", "deadline_exceeded", "released_too_often"]


def _dead(reason: str) -> int:
    q = cast.queue("grim", max_crashes=1, max_releases=1)
    if reason == "exhausted":
        return cast.buried(queue=q)
    lease = cast.leased(now=at(0), queue=q, max_attempts=1 if reason == "uncertain" else 5, deadline=at(300))
    if reason == "poison":
        upkeep.reap(now=at(30))
    elif reason == "released_too_often":
        cast.release(lease, now=at(1))
        cast.release(cast.claim_one(q, now=at(2)), now=at(3))
    elif reason == "deadline_exceeded":
        cast.fail(lease, now=at(1), retry_after_s=9_999)
    else:
        cast.fail(lease, now=at(1), error_class="permanent" if reason == "invalid" else reason)
    return lease.job_id


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_leads_to_one_dead_letter(reason: str) -> None:
    job_id = _dead(reason)
    assert cast.place(job_id) == "deadletter"
    assert reads.dead_letter(job_id, scope=FLEET).reason == reason


@pytest.mark.parametrize("reason", REASONS)
def test_poison_and_invalid_need_a_correction(reason: str) -> None:
    assert reads.dead_letter(_dead(reason), scope=FLEET).correction_required == (
        reason in ("poison", "invalid")
    )


def test_a_dead_letter_keeps_its_ticket() -> None:
    lease = cast.leased(now=at(0), deadline=at(900), max_attempts=1)
    cast.renew(lease, now=at(1), checkpoint='"here"')
    before = cast.row("queue_lease", lease.job_id)
    cast.fail(lease, now=at(2))
    dead = cast.row("dlq_deadletter", lease.job_id)
    kept = (
        "lane_id",
        "first_ready_at",
        "deadline",
        "generation",
        "attempt",
        "max_attempts",
        "checkpoint",
        "releases",
    )
    assert {name: dead[name] for name in kept} == {name: before[name] for name in kept}


def test_a_dead_letter_shows_no_payload_but_its_size_and_hash() -> None:
    view = reads.dead_letter(cast.buried(payload='"tell nobody"'), scope=FLEET)
    assert view.payload_bytes == 13
    assert "tell nobody" not in repr(view)


def test_a_foreign_dead_letter_is_not_there() -> None:
    job_id = cast.buried()
    with pytest.raises(NotFound):
        reads.dead_letter(job_id, scope=cast.mallory())


def test_a_living_job_is_no_dead_letter() -> None:
    with pytest.raises(NotFound):
        reads.dead_letter(cast.enqueue(), scope=FLEET)


def test_dead_letters_are_listed_newest_first_without_gaps() -> None:
    ids = [cast.buried(now=at(10 * turn)) for turn in range(5)]
    seen, before = [], None
    while True:
        page, before = reads.page(DeadFilter(), scope=FLEET, before=before, limit=2)
        seen += [view.job_id for view in page]
        if before is None:
            break
    assert seen == ids[::-1]


def test_dead_letters_of_one_instant_page_without_gaps() -> None:
    cast.enqueue_many(5, now=at(0), max_attempts=1)
    for lease in cast.claim(now=at(0), limit=5):
        cast.fail(lease, now=at(1))
    first, place = reads.page(DeadFilter(), scope=FLEET, before=None, limit=3)
    rest, end = reads.page(DeadFilter(), scope=FLEET, before=place, limit=3)
    assert len({view.job_id for view in first + rest}) == 5
    assert end is None


def test_a_tenant_lists_its_own_dead_letters() -> None:
    cast.buried()
    theirs = cast.buried(tenant_id=globex().pk, now=at(5))
    page, _ = reads.page(DeadFilter(), scope=cast.mallory(), before=None, limit=9)
    assert [view.job_id for view in page] == [theirs]


def test_a_list_is_narrowed_by_each_filter() -> None:
    other = cast.queue("other")
    job_id = cast.buried(queue=other, kind="odd", error_class="permanent")
    cast.buried(now=at(9), error_class="uncertain")
    fingerprint = reads.dead_letter(job_id, scope=FLEET).fingerprint
    for wanted in (
        DeadFilter(queue_id=other.id),
        DeadFilter(kind="odd"),
        DeadFilter(reason="invalid"),
        DeadFilter(fingerprint=fingerprint),
    ):
        page, _ = reads.page(wanted, scope=FLEET, before=None, limit=9)
        assert [view.job_id for view in page] == [job_id]


# Fingerprints group like errors


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user 17 is gone", "user 18 is gone"),
        ("at 0xdeadbeef", "at 0x1234"),
        ("key 'a' missing", "key 'b' missing"),
        ("id 7e57d004-2b97-0e7a-b45f-5387367791cd", "id 7e57d004-2b97-4e7a-b45f-5387367791ce"),
        ("first\nmiddle one\nlast", "first\nmiddle two\nmore\nlast"),
        ("blob 9f86d081884c7d65 missing", "blob 60303ae22b998861 missing"),
        ("run 01HV6Z8K3N4P5Q6R7S8T9V0W1X ended", "run 01HV6Z8K3N4P5Q6R7S8T9V0W2Y ended"),
        ("no column `a`", "no column `b`"),
        ("a   b", "a b"),
        (
            TRACEBACK.format(line=12, function="charge", path="/srv/app", said="ValueError: 17 is odd"),
            TRACEBACK.format(line=14, function="charge", path="/opt/app", said="ValueError: 19 is odd"),
        ),
        ("Boom: 1\n  at Mailer.send (mail.js:10)", "Boom: 2\n  at Mailer.send (mail.js:12)"),
    ],
)
def test_errors_that_differ_in_variable_parts_are_alike(one: str, other: str) -> None:
    assert quarantine.fingerprint("transient", one) == quarantine.fingerprint("transient", other)


def test_different_errors_differ() -> None:
    shapes = [("transient", "no route"), ("permanent", "no route"), ("transient", "no host"), (None, "")]
    assert len({quarantine.fingerprint(*shape) for shape in shapes}) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            TRACEBACK.format(line=12, function="charge", path="/srv", said="ValueError: odd"),
            TRACEBACK.format(line=12, function="refund", path="/srv", said="ValueError: odd"),
        ),
        ("Boom: 1\n  at Mailer.send (mail.js:10)", "Boom: 1\n  at Mailer.open (mail.js:10)"),
        ("the facade is broken", "the decade is broken"),
    ],
)
def test_errors_of_different_places_or_words_differ(one: str, other: str) -> None:
    assert quarantine.fingerprint("transient", one) != quarantine.fingerprint("transient", other)


def test_a_fingerprint_takes_no_long_time_of_any_message() -> None:
    for text in ("a" * 8_000, "f" * 8_000, "a-" * 4_000, '"' * 8_000, "0" * 8_000, 'File "' * 1_300):
        assert len(quarantine.fingerprint("transient", text)) == 16


def test_a_message_of_any_bytes_has_a_fingerprint() -> None:
    assert len(quarantine.fingerprint("transient", "\ud83d\0\u2028" * 100)) == 16


@pytest.mark.parametrize(
    "message", ["\u2028 line", "quote \" ' \\ {}%s", "tab\tand\r\nline", "\x01\x7f", "😀" * 3_000]
)
def test_a_message_of_any_kind_is_kept_in_the_dead_letter(message: str) -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    cast.fail(lease, now=at(1), message=message)
    assert cast.row("dlq_deadletter", lease.job_id)["message"] == message.encode()[:8192].decode(
        "utf-8", "ignore"
    )


def test_a_checkpoint_of_any_kind_survives_quarantine_and_redrive() -> None:
    lease = cast.leased(now=at(0), max_attempts=1)
    checkpoint = '{"a" : 1.10, "b":"\\u00e9 \\\\ \\""}'
    cast.renew(lease, now=at(1), checkpoint=checkpoint)
    cast.fail(lease, now=at(2))
    cast.redriven(lease.job_id, now=at(3))
    assert cast.claim_one(now=at(4)).checkpoint == checkpoint


def test_a_quarantine_that_fails_leaves_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never out of one place without another."""
    lease = cast.leased(now=at(0), max_attempts=1)

    def broken(*_: object, **__: object) -> None:
        raise DatabaseError("no room")

    monkeypatch.setattr("jobqueue.hooks._quarantine", broken)
    with cast.changes_nothing(lease.job_id), pytest.raises(DatabaseError):
        cast.fail(lease, now=at(1))
