"""The messages face: what the client says and how it reads the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from jobsplatform.scopes import TABLE
from jobsplatform_client import Client, MessageQueue, Retry, errors
from tests.chaos.harness import Platform
from tests.clients.conftest import QUICK

Answers = Callable[[httpx.Request], httpx.Response]

RECEIVED = {
    "id": "0-88213",
    "priority": 1,
    "receipt": "0-88213-3",
    "deliveries": 2,
    "body": "aGVsbG8=",
    "enqueued_at": "2026-01-02T03:04:05.000006Z",
    "expires_at": "2026-01-06T03:04:05Z",
}


class Script:
    """Answers in order; a status alone stands for a lost connection when it is 0."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = iter(answers)
        self.calls: list[tuple[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls.append((request.url.raw_path.decode(), json.loads(request.content)))
        status, body = next(self.answers)
        if status == 0:
            raise httpx.ReadError("reset")
        return httpx.Response(status, json=body)


def queue_of(script: Script, name: str = "mail") -> MessageQueue:
    retry = Retry(give_up_after_s=5, first_s=0.01)
    return Client("http://platform", "jp_1_s", retry=retry, transport=httpx.MockTransport(script)).queue(name)


def test_a_text_is_sent_as_base64_under_a_key() -> None:
    script = Script((202, {"id": "0-1", "shard": 0, "replayed": False}))
    sent = queue_of(script).send("hello", priority=0, delay_s=5)
    ((path, body),) = script.calls
    assert path == "/v1/queues/mail/messages"
    assert body == {"body": "aGVsbG8=", "dedup_key": sent.dedup_key, "priority": 0, "delay_s": 5}
    assert (sent.id, sent.replayed, sent.same_content) == ("0-1", False, True)


def test_a_send_whose_answer_was_lost_is_repeated_under_its_key() -> None:
    script = Script((0, None), (202, {"id": "0-1", "shard": 0, "replayed": True}))
    assert queue_of(script).send(b"\x00\xff").replayed
    assert len({body["dedup_key"] for _, body in script.calls}) == 1


def test_other_content_under_a_key_is_told() -> None:
    script = Script((202, {"id": "0-1", "shard": 0, "replayed": True, "same_content": False}))
    assert not queue_of(script).send("hello", dedup_key="mine").same_content


def test_a_message_is_read_with_its_bytes_and_instants() -> None:
    script = Script((200, {"messages": [RECEIVED]}))
    (message,) = queue_of(script).receive(limit=10, wait_s=5, max_priority=1)
    assert script.calls == [("/v1/queues/mail/receive", {"max": 10, "wait_s": 5, "max_priority": 1})]
    assert (message.body, message.receipt, message.deliveries) == (b"hello", "0-88213-3", 2)
    assert message.enqueued_at is not None
    assert message.enqueued_at.microsecond == 6


def done(**lists: Any) -> tuple[int, Any]:
    return 200, {"ack": [], "extend": [], "release": [], "fail": [], "rejected": []} | lists


def test_receipts_are_settled_in_one_call() -> None:
    script = Script(
        done(
            ack=["a"],
            extend=[{"receipt": "b", "expires_at": "2026-01-02T03:04:05Z"}],
            fail=["d"],
            rejected=[{"receipt": "c", "code": "lease_expired"}],
        )
    )
    settled = queue_of(script).settle(ack=["a"], extend=[("b", 60)], release=["c"], fail=[("d", "boom")])
    ((path, body),) = script.calls
    assert path == "/v1/queues/mail/ack"
    assert body == {
        "ack": ["a"],
        "extend": [{"receipt": "b", "lease_s": 60}],
        "release": ["c"],
        "fail": [{"receipt": "d", "message": "boom"}],
    }
    assert (settled.acked, list(settled.extended), settled.failed) == (["a"], ["b"], ["d"])
    assert [(one.receipt, one.code) for one in settled.rejected] == [("c", "lease_expired")]
    assert not settled.may_be_repeat


def test_what_is_rejected_after_a_lost_answer_may_have_been_done() -> None:
    script = Script((0, None), done(rejected=[{"receipt": "a", "code": "already_finished"}]))
    assert queue_of(script).ack("a").may_be_repeat


def test_nothing_to_settle_calls_nobody() -> None:
    script = Script()
    assert queue_of(script).ack().acked == ()
    assert script.calls == []


def test_a_queue_s_name_is_one_part_of_the_path() -> None:
    script = Script((404, {"code": "not_found", "status": 404}))
    with pytest.raises(errors.NotFound):
        queue_of(script, "a/../b").receive()
    assert script.calls[0][0] == "/v1/queues/a%2F..%2Fb/receive"


# On a running platform

on_the_platform = pytest.mark.skipif(
    "POST /v1/queues/{queue}/messages" not in TABLE, reason="this platform has no messages face"
)


@pytest.fixture(scope="module")
def letters(platform: Platform) -> str:
    platform.manage("createqueue", "letters")
    return "letters"


@pytest.fixture
def mail(platform: Platform, token: str, letters: str) -> Iterator[MessageQueue]:
    """An empty queue."""
    with Client(f"http://127.0.0.1:{platform.port}", token, retry=QUICK) as client:
        mail = client.queue(letters)
        while left := mail.receive(limit=100):
            mail.ack(*left)
        yield mail


@on_the_platform
def test_a_message_goes_from_hand_to_hand(mail: MessageQueue) -> None:
    sent = mail.send(b"\x00hello\xff", priority=1)
    (message,) = mail.receive(wait_s=5)
    assert (message.id, message.body, message.priority, message.deliveries) == (
        sent.id,
        b"\x00hello\xff",
        1,
        1,
    )
    assert mail.ack(message).acked == [message.receipt]
    assert mail.receive() == []


@on_the_platform
def test_a_second_send_under_a_key_is_the_first(mail: MessageQueue) -> None:
    first, second = mail.send("one", dedup_key="k"), mail.send("one", dedup_key="k")
    assert (second.id, second.replayed, second.same_content) == (first.id, True, True)
    assert not mail.send("other", dedup_key="k").same_content


@on_the_platform
def test_a_receipt_is_extended_released_and_failed(mail: MessageQueue) -> None:
    mail.send("one")
    (first,) = mail.receive(wait_s=5, lease_s=5)
    assert list(mail.extend(first, lease_s=60).extended) == [first.receipt]
    assert mail.release(first).released == [first.receipt]
    (second,) = mail.receive(wait_s=5)
    assert mail.fail(second, message="boom").failed == [second.receipt]
    assert [one.code for one in mail.ack(first).rejected] == ["stale_generation"]
