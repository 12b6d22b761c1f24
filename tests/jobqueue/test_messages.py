"""Messages by their verbs: dedup, expiry, deliveries, receipts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import claiming, fsck, messages, upkeep
from jobqueue.claiming import Lease
from jobqueue.ids import format_id
from jobqueue.messages import Delivery, Extension, Failure, NewMessage, Receipt, Sent
from jobqueue.types import Scope
from jobsplatform.errors import Invalid
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db

NOW, LATER = at(0), at(1)


def send(body: bytes = b"hi", *, now: datetime = NOW, **changes: Any) -> Sent:
    values: dict[str, Any] = {"queue": cast.queue(), "priority": 2, "tenant_id": cast.acme().pk, **changes}
    return messages.send(NewMessage(body=body, **values), now=now)


def receive(
    limit: int = 1, *, now: datetime = NOW, scope: Scope | None = None, **more: Any
) -> list[Delivery]:
    asked = {"lease_s": None, "max_priority": None, **more}
    request = messages.claim_request(cast.queue(), limit=limit, **asked)
    return messages.deliveries(claiming.claim(request, scope=scope or consumer(), now=now))


def consumer(token_id: int = 7) -> Scope:
    return Scope(tenant_id=cast.acme().pk, queue_ids=(cast.queue().id,), token_id=token_id)


def settle(*, scope: Scope | None = None, now: datetime = LATER, **asked: Any) -> messages.Settled:
    return messages.settle(scope=scope or consumer(), now=now, **asked)


def lapse(times: int, *, first: float = 0) -> Lease:
    """Receive and let lapse, so many times."""
    for n in range(times):
        (one,) = receive(now=at(first + 31 * n))
        upkeep.reap(now=at(first + 31 * (n + 1) - 0.5))
    return one.lease


# One row, two faces


def test_a_message_is_a_job_of_its_kind() -> None:
    job_id = send(b"\x00\xff opaque").job_id
    assert (cast.row("queue_job", job_id)["kind"], cast.place(job_id)) == ("message", "readyjob")


def test_a_body_comes_back_byte_for_byte() -> None:
    import base64

    body = bytes(range(256))
    send(body)
    (one,) = receive()
    assert base64.b64decode(one.body) == body


def test_a_job_of_the_kind_from_the_jobs_face_is_delivered_as_its_text() -> None:
    cast.enqueue(kind="message", payload='{"a": 1}', now=at(0))
    (one,) = receive()
    assert one.body == "eyJhIjogMX0="


# Deduplication


def test_a_dedup_key_names_the_first_message_within_the_window() -> None:
    first = send(dedup_key="K", now=at(0))
    assert send(dedup_key="K", now=at(599)) == Sent(first.job_id, replayed=True)


def test_other_content_under_a_dedup_key_gives_the_first_id_and_says_so() -> None:
    first = send(b"one", dedup_key="K")
    assert send(b"two", dedup_key="K", now=at(1)) == Sent(first.job_id, replayed=True, same_content=False)


def test_the_window_is_fixed_from_the_first_acceptance_and_does_not_slide() -> None:
    first = send(dedup_key="K", now=at(0))
    assert send(dedup_key="K", now=at(500)).job_id == first.job_id
    assert send(dedup_key="K", now=at(601)).job_id != first.job_id


def test_after_the_window_the_key_names_the_new_message() -> None:
    send(dedup_key="K", now=at(0))
    second = send(dedup_key="K", now=at(601))
    assert send(dedup_key="K", now=at(602)) == Sent(second.job_id, replayed=True)


def test_a_dedup_key_and_a_request_key_never_meet() -> None:
    job_id = cast.enqueue(request_key="K", now=at(0))
    assert send(dedup_key="K").job_id != job_id


def test_fsck_finds_no_fault_in_a_key_that_went_on_to_another_message() -> None:
    import datetime as dt

    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    send(dedup_key="K", now=past)
    send(dedup_key="K", now=past + dt.timedelta(seconds=601))
    assert [fault.fault for fault in fsck.check()] == []


# Times


def test_a_message_expires_four_days_after_it_was_sent() -> None:
    job_id = send(now=at(0)).job_id
    assert cast.row("queue_job", job_id)["deadline"] == at(345_600)


def test_a_delayed_message_has_its_four_days_from_when_it_can_be_delivered() -> None:
    job_id = send(delay_s=864_000, now=at(0)).job_id
    assert cast.row("queue_job", job_id)["deadline"] == at(864_000 + 345_600)


def test_a_message_whose_delivery_lies_long_past_is_delivered_at_once() -> None:
    sent = send(deliver_at=at(-30 * 86_400), now=at(0))
    assert cast.row("queue_readyjob", sent.job_id)["deadline"] == at(4 * 86_400)


def test_a_repeat_after_the_delivery_s_instant_has_the_same_content() -> None:
    first = send(deliver_at=at(5), dedup_key="k", now=at(0))
    assert send(deliver_at=at(5), dedup_key="k", now=at(10)) == replace(first, replayed=True)


def test_a_message_that_would_expire_before_its_delivery_is_refused() -> None:
    with pytest.raises(Invalid):
        send(delay_s=60, expires_in_s=30)


def test_a_message_that_was_tried_expires_all_the_same_and_is_no_dead_letter() -> None:
    job_id = send(expires_in_s=40, now=at(0)).job_id
    receive(now=at(0))
    upkeep.reap(now=at(31))
    upkeep.expire(now=at(41))
    assert cast.row("queue_result", job_id)["outcome"] == "expired"


def test_a_last_delivery_that_lapses_after_the_deadline_expires_too() -> None:
    job_id = send(expires_in_s=31 * 4 + 20, now=at(0)).job_id
    lapse(5)
    upkeep.expire(now=at(31 * 5))
    assert (cast.place(job_id), cast.row("queue_result", job_id)["outcome"]) == ("result", "expired")


def test_a_failure_whose_next_try_would_come_too_late_waits_for_its_expiry() -> None:
    job_id = send(expires_in_s=2, now=at(0)).job_id
    (one,) = receive()
    assert settle(fail=[Failure(one.receipt, "boom")], now=at(1.5)).fail == [one.receipt]
    upkeep.expire(now=at(3))
    assert cast.row("queue_result", job_id)["outcome"] == "expired"


# Deliveries


def test_five_lapsed_deliveries_make_a_dead_letter() -> None:
    job_id = send(now=at(0)).job_id
    assert lapse(5).attempt == 5
    assert cast.row("dlq_deadletter", job_id)["reason"] == "exhausted"


def test_four_lapsed_deliveries_do_not() -> None:
    job_id = send(now=at(0)).job_id
    lapse(4)
    assert cast.place(job_id) == "readyjob"


def test_five_failed_deliveries_make_a_dead_letter_with_the_last_error() -> None:
    job_id = send(now=at(0)).job_id
    for n in range(5):
        now = at(100 * n)
        upkeep.promote(now=now)
        (one,) = receive(now=now)
        settle(fail=[Failure(one.receipt, f"error {n}")], now=now)
    dead = cast.row("dlq_deadletter", job_id)
    assert (dead["reason"], dead["message"]) == ("exhausted", "error 4")


def test_a_released_delivery_does_not_count() -> None:
    send(now=at(0))
    for n in range(8):
        (one,) = receive(now=at(n))
        assert one.lease.attempt == 1
        settle(release=[one.receipt], now=at(n))


def test_an_exhausted_message_is_redriven_without_a_correction() -> None:
    job_id = send(now=at(0)).job_id
    lapse(5)
    assert cast.redriven(job_id, now=at(200)).state == "ready"
    (one,) = receive(now=at(201))
    assert (one.lease.job_id, one.lease.attempt, one.lease.generation) == (job_id, 1, 6)


def test_most_urgent_first_then_first_in_first_out() -> None:
    sent = [send(priority=priority, now=at(n)).job_id for n, priority in enumerate((4, 0, 2, 0, 4, 2))]
    taken = [one.lease.job_id for one in receive(10, now=at(10))]
    assert taken == [sent[n] for n in (1, 3, 2, 5, 0, 4)]


def test_one_consumer_receives_a_band_in_the_order_of_sending() -> None:
    sent = [send(str(n).encode(), now=at(n)).job_id for n in range(12)]
    taken = [receive(now=at(20 + n))[0].lease.job_id for n in range(12)]
    assert taken == sent


def test_less_urgent_messages_than_asked_for_stay() -> None:
    send(priority=3)
    assert receive(max_priority=2) == []
    assert len(receive(max_priority=3)) == 1


# Receipts


def test_an_acknowledged_message_is_done() -> None:
    job_id = send().job_id
    (one,) = receive()
    assert settle(ack=[one.receipt]).ack == [one.receipt]
    assert cast.row("queue_result", job_id)["outcome"] == "succeeded"


def test_a_receipt_counts_only_for_the_token_that_received_it() -> None:
    job_id = send().job_id
    (one,) = receive(scope=consumer(7))
    with cast.changes_nothing(job_id):
        assert settle(ack=[one.receipt], scope=consumer(8)).rejected == [(one.receipt, "stale_generation")]


def test_a_late_acknowledgment_is_rejected_before_and_after_the_reaper_came() -> None:
    send(now=at(0))
    (one,) = receive(now=at(0))
    assert settle(ack=[one.receipt], now=at(30)).rejected == [(one.receipt, "lease_expired")]
    upkeep.reap(now=at(31))
    assert settle(ack=[one.receipt], now=at(32)).rejected == [(one.receipt, "lease_expired")]


def test_an_earlier_delivery_s_receipt_is_stale() -> None:
    send(now=at(0))
    (first,) = receive(now=at(0))
    upkeep.reap(now=at(31))
    (second,) = receive(now=at(32))
    done = settle(ack=[first.receipt, second.receipt], now=at(33))
    assert (done.ack, done.rejected) == ([second.receipt], [(first.receipt, "stale_generation")])


def test_a_second_acknowledgment_says_that_it_is_finished() -> None:
    send()
    (one,) = receive()
    settle(ack=[one.receipt])
    assert settle(ack=[one.receipt]).rejected == [(one.receipt, "already_finished")]


def test_an_extension_keeps_the_receipt_alive() -> None:
    send(now=at(0))
    (one,) = receive(now=at(0))
    assert settle(extend=[Extension(one.receipt, 100)], now=at(20)).extend == [(one.receipt, at(120))]
    assert settle(ack=[one.receipt], now=at(110)).ack == [one.receipt]


def test_receipts_of_another_queue_and_of_nothing_are_not_found() -> None:
    send()
    (one,) = receive()
    elsewhere = replace(consumer(), queue_ids=(cast.queue("other").id,))
    asked = [one.receipt, "0-99999999-1", "77-1-1"]
    rejected = settle(ack=asked, scope=elsewhere).rejected
    assert sorted(rejected) == sorted((text, "not_found") for text in asked)


@pytest.mark.parametrize("text", ["", "x", "0-1", "0-1-0", "0-1-01", "0-1-99999999999", "-1-1-1", "0-1-1 "])
def test_what_no_receipt_looks_like_is_malformed(text: str) -> None:
    assert settle(ack=[text]).rejected == [(text, "malformed")]


def test_one_call_judges_each_receipt_alone() -> None:
    for n in range(4):
        send(str(n).encode())
    one, two, three, four = [delivery.receipt for delivery in receive(4)]
    done = settle(
        ack=[one, "x"], extend=[Extension(two, 60)], release=[three], fail=[Failure(four, "no")], now=at(1)
    )
    assert (done.ack, done.extend, done.release, done.fail) == ([one], [(two, at(61))], [three], [four])
    assert done.rejected == [("x", "malformed")]


@given(st.integers(0, 2**15 - 1), st.integers(1, 2**48 - 1), st.integers(1, 2**31 - 1))
def test_a_receipt_is_read_as_it_was_written(space: int, sequence: int, generation: int) -> None:
    job_id = space << 48 | sequence
    assert messages.parse_receipt(f"{format_id(job_id)}-{generation}") == Receipt(job_id, generation)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_receipts(text: str) -> None:
    found = messages.parse_receipt(text)
    assert found is None or f"{format_id(found.job_id)}-{found.generation}" == text
