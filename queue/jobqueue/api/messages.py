"""Calls of the messages face: send, receive, acknowledge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from jobqueue import messages
from jobqueue.api import message_bodies as bodies
from jobqueue.api.calls import found_queue, queue_in_path, scope_of
from jobqueue.api.waiting import claim_or_wait
from jobqueue.api.wire import Members
from jobqueue.claiming import Lease
from jobqueue.ids import format_id
from jobqueue.limits import BATCH_BODY_BYTES_MAX, HORIZON, JOB_BODY_BYTES_MAX, RECEIPTS_MAX
from jobqueue.messages import Delivery, Extension, Failure, NewMessage
from jobqueue.policies import QueuePolicy
from jobsplatform.errors import FieldError, Invalid
from jobsplatform.http import Call, Endpoint, Later, Reply
from jobsplatform.instants import format_instant, format_optional
from jobsplatform.schemas import INSTANT, INSTANT_OR_NULL, NUMBER, TEXT, TRUTH, described, words
from jobsplatform.shapes import Checked

REJECTIONS = ("malformed", "not_found", "stale_generation", "lease_expired", "already_finished")

_TEXTS = {"type": "array", "items": TEXT}
SENT = described("MessageSent", {"id": TEXT, "shard": NUMBER, "replayed": TRUTH, "same_content?": TRUTH})
MESSAGE = described(
    "Message",
    {
        "id": TEXT,
        "priority": NUMBER,
        "receipt": TEXT,
        "deliveries": NUMBER,
        "body": TEXT,
        "enqueued_at": INSTANT,
        "expires_at": INSTANT_OR_NULL,
    },
)
MESSAGES = described("Messages", {"messages": {"type": "array", "items": MESSAGE}})
_EXTENDED = described("Extended", {"receipt": TEXT, "expires_at": INSTANT})
_REJECTED = described("Rejected", {"receipt": TEXT, "code": words(REJECTIONS)})
ACKNOWLEDGED = described(
    "Acknowledged",
    {
        "ack": _TEXTS,
        "extend": {"type": "array", "items": _EXTENDED},
        "release": _TEXTS,
        "fail": _TEXTS,
        "rejected": {"type": "array", "items": _REJECTED},
    },
)


class _QueueCall(Endpoint):
    """A call about one queue, which its path names."""

    def check(self, call: Call) -> None:
        self.queue = queue_in_path(call)


class Send(_QueueCall):
    """Accept one message. 202: it is durable. `replayed`: its dedup_key had named it within the window."""

    body = bodies.SEND
    body_bytes_max = JOB_BODY_BYTES_MAX
    needs_tenant = True
    takes_idempotency_key = True
    replies = {202: SENT}

    def check(self, call: Call) -> None:
        super().check(call)
        self.message = None if self.queue is None else new_message(call, self.queue)

    def act(self, call: Call) -> Reply:
        found_queue(call, self.queue)
        assert self.message is not None
        sent = messages.send(self.message)
        members = {"id": format_id(sent.job_id), "shard": sent.shard, "replayed": sent.replayed}
        return Reply(202, members if sent.same_content else members | {"same_content": False})


class Receive(_QueueCall):
    """Take messages, most urgent first; waits up to `wait_s` for the first. None is a normal answer."""

    body = bodies.RECEIVE
    replies = {200: MESSAGES}

    def act(self, call: Call) -> Reply | Later:
        queue = found_queue(call, self.queue)
        request = messages.claim_request(
            queue,
            limit=call.body["max"],
            lease_s=call.body["lease_s"],
            max_priority=call.body["max_priority"],
        )
        return claim_or_wait(call, request, scope_of(call), received)


class Ack(_QueueCall):
    """Acknowledge, extend, release and fail receipts; each stands alone, and `rejected` says why one counts not."""

    body = bodies.ACK
    body_bytes_max = BATCH_BODY_BYTES_MAX
    replies = {200: ACKNOWLEDGED}

    def check(self, call: Call) -> None:
        super().check(call)
        if sum(len(items) for items in call.body.values()) > RECEIPTS_MAX:
            raise Invalid.at("", f"More than {RECEIPTS_MAX:,} receipts in all.", "length")
        _refuse_faulty([*call.body["extend"], *call.body["fail"]])
        self.extend = [Extension(**one.values) for one in call.body["extend"]]
        self.fail = [Failure(**one.values) for one in call.body["fail"]]

    def act(self, call: Call) -> Reply:
        queue = found_queue(call, self.queue)
        settled = messages.settle(
            ack=call.body["ack"],
            extend=self.extend,
            release=call.body["release"],
            fail=self.fail,
            scope=replace(scope_of(call), queue_ids=(queue.id,)),
        )
        return Reply(
            200,
            {
                "ack": settled.ack,
                "extend": [
                    {"receipt": receipt, "expires_at": format_instant(at)} for receipt, at in settled.extend
                ],
                "release": settled.release,
                "fail": settled.fail,
                "rejected": [{"receipt": receipt, "code": code} for receipt, code in settled.rejected],
            },
        )


# From bodies to messages, and back


def new_message(call: Call, queue: QueuePolicy) -> NewMessage:
    """The message that a checked body asks for. Raises Invalid for a band or time that cannot be."""
    body = call.body
    if body["deliver_at"] is not None and body["deliver_at"] > datetime.now(UTC) + HORIZON:
        raise Invalid.at("/deliver_at", "Lies more than ten years ahead.", "range")
    assert call.tenant is not None, "the endpoint needs a tenant"
    return NewMessage(
        tenant_id=call.tenant.id,
        queue=queue,
        body=body["body"],
        priority=queue.priority(body["priority"]),
        deliver_at=body["deliver_at"],
        delay_s=body["delay_s"],
        expires_in_s=body["expires_in_s"],
        dedup_key=_dedup_key(call),
    )


def received(held: Sequence[Lease]) -> Reply:
    return Reply(200, {"messages": [_message(one) for one in messages.deliveries(held)]})


def _dedup_key(call: Call) -> str | None:
    """From the body or the header. Raises Invalid when the two differ."""
    sent: str | None = call.body["dedup_key"]
    if call.idempotency_key is None:
        return sent
    if sent is not None and sent != call.idempotency_key:
        raise Invalid.at("/dedup_key", "Differs from the Idempotency-Key header.", "conflict")
    return call.idempotency_key


def _message(one: Delivery) -> Members:
    lease = one.lease
    return {
        "id": format_id(lease.job_id),
        "priority": lease.priority,
        "receipt": one.receipt,
        "deliveries": lease.attempt,
        "body": one.body,
        "enqueued_at": format_instant(one.enqueued_at),
        "expires_at": format_optional(lease.deadline),
    }


def _refuse_faulty(items: Sequence[Checked]) -> None:
    """An item that breaks a rule refuses the call: it may name no receipt to answer for."""
    faults: list[FieldError] = [fault for item in items for fault in item.errors]
    if faults:
        raise Invalid(errors=faults)
