"""What a job of kind `http.post` may hold, what it sends, and what each answer means for it."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from django.db import OperationalError

from jobqueue import JobContext, NotDone, Overload, Permanent, Transient, Uncertain
from jobqueue.enqueue import enqueue
from jobqueue.posting import kind, payload
from jobqueue.posting.exchange import Answer
from jobqueue.worker import registry
from jobsplatform.errors import Invalid
from tenants import signing
from tests import cast
from tests.jobqueue.posting.conftest import Receiver
from tests.jobqueue.worker.fake import make_lease

pytestmark = pytest.mark.django_db


class _Backing:
    def save_checkpoint(self, job: JobContext, text: str) -> None:
        raise AssertionError

    def note_done(self, job: JobContext) -> None:
        raise AssertionError

    def queue_name(self, queue_id: int) -> str:
        return "default"

    def tenant_slug(self, tenant_id: int) -> str:
        return "acme"


@pytest.fixture(autouse=True)
def _development(settings: Any) -> None:
    settings.JOBS_POST_LOOPBACK = True


def job(text: str, **changes: Any) -> JobContext:
    tenant = cast.acme()
    lease = make_lease(88, payload.KIND, text, tenant_id=tenant.pk, **changes)
    return JobContext(lease, 0, time.monotonic(), _Backing())


def send(receiver: Receiver, **more: Any) -> dict[str, Any]:
    return kind.post(job(json.dumps({"url": receiver.url, "body": {"a": 1}} | more)))


def heard(receiver: Receiver) -> tuple[dict[str, str], bytes]:
    head, _, body = receiver.heard[-1].partition(b"\r\n\r\n")
    lines = [line.decode().split(": ", 1) for line in head.splitlines()[1:]]
    return {name.lower(): value for name, value in lines}, body


# The payload


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("null", ""),
        ('"https://example.org"', ""),
        ("{}", "/url"),
        ('{"url": 5}', "/url"),
        ('{"url": "https://10.0.0.1/"}', "/url"),
        ('{"url": "https://example.org/", "method": "PUT"}', "/method"),
        ('{"url": "https://example.org/", "timeout_s": 0}', "/timeout_s"),
        ('{"url": "https://example.org/", "timeout_s": 301}', "/timeout_s"),
        ('{"url": "https://example.org/", "timeout_s": true}', "/timeout_s"),
        ('{"url": "https://example.org/", "headers": []}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"Host": "x"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"Content-Length": "1"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"Idempotency-Key": "1"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"Metadata-Flavor": "Google"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"X-A": "a\\r\\nHost: b"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"A": "1", "a": "2"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"A b": "1"}}', "/headers"),
        ('{"url": "https://example.org/", "headers": {"A": 1}}', "/headers"),
    ],
)
def test_a_payload_that_cannot_be_sent_names_its_fault(text: str, pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        payload.read(text)
    assert [error.pointer for error in refused.value.errors] == [pointer]


def test_a_job_that_could_never_be_sent_is_refused_when_it_is_made() -> None:
    refused, accepted = enqueue(
        [
            cast.new_job(kind=payload.KIND, payload='{"url": "https://10.0.0.1/"}'),
            cast.new_job(kind=payload.KIND, payload='{"url": "https://example.org/"}'),
        ]
    )
    assert isinstance(refused, Invalid)
    assert [error.pointer for error in refused.errors] == ["/payload/url"]
    cast.accepted(accepted)


def test_a_payload_elsewhere_is_refused_too() -> None:
    [refused] = enqueue([cast.new_job(kind=payload.KIND, payload=None, payload_ref="s3://b/k")])
    assert isinstance(refused, Invalid)


def test_a_correction_is_held_to_the_same_rules() -> None:
    job_id = cast.buried(kind=payload.KIND, payload='{"url": "https://example.org/"}')
    with pytest.raises(Invalid):
        cast.correct(job_id, payload='{"url": "https://10.0.0.1/"}')


def test_a_call_whose_answer_was_lost_is_made_again() -> None:
    registry.discover()
    declared = registry.declared_of(payload.KIND)
    assert declared is not None
    assert declared.declaration.external_effects
    assert declared.reconcile is not None
    assert isinstance(declared.reconcile(job("{}")), NotDone)


def test_a_payload_that_cannot_be_sent_is_a_permanent_failure() -> None:
    with pytest.raises(Permanent, match="url"):
        kind.post(job('{"url": "https://10.0.0.1/"}'))


# The request


def test_the_body_arrives_digit_for_digit(receiver: Receiver) -> None:
    receiver.answers(200)
    kind.post(job(f'{{"url": "{receiver.url}", "body": {{"n": 1.10, "big": 12345678901234567890123}}}}'))
    assert heard(receiver)[1] == b'{"n": 1.10, "big": 12345678901234567890123}'


def test_the_key_is_the_operation_id_and_the_headers_are_the_tenants(receiver: Receiver) -> None:
    receiver.answers(200)
    send(receiver, headers={"Authorization": "Bearer theirs"})
    headers, _ = heard(receiver)
    assert (headers["idempotency-key"], headers["authorization"]) == ("0-88", "Bearer theirs")
    assert headers["content-type"] == "application/json"


def test_a_receiver_can_verify_the_signature(receiver: Receiver) -> None:
    receiver.answers(200)
    send(receiver)
    headers, body = heard(receiver)
    [secret] = signing.secrets_of(cast.acme().pk)
    expected = signing.headers([secret], "0-88", int(headers["webhook-timestamp"]), body)
    assert headers["webhook-signature"] == expected["Webhook-Signature"]
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300


def test_a_trace_goes_along(receiver: Receiver) -> None:
    receiver.answers(200)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    kind.post(job(json.dumps({"url": receiver.url}), traceparent=trace))
    assert heard(receiver)[0]["traceparent"] == trace


@pytest.mark.parametrize("trace", ["", "soon", "00-1\r\n X-Evil: 1", "00-1\r\nX-Evil: 1", "日本"])
def test_a_trace_that_is_none_is_left_out(receiver: Receiver, trace: str) -> None:
    """It is no part of the call: it must not keep it from being made, nor add to its headers."""
    receiver.answers(200)
    kind.post(job(json.dumps({"url": receiver.url}), traceparent=trace))
    assert "traceparent" not in heard(receiver)[0]
    assert b"Evil" not in receiver.heard[0]


def test_without_a_secret_nothing_was_sent(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(tenant_id: int) -> list[bytes]:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(signing, "secrets_of", away)
    with pytest.raises(Transient, match="not sent"):
        send(receiver)
    assert receiver.heard == []


def test_the_result_tells_the_status_and_the_start_of_the_answer(receiver: Receiver) -> None:
    receiver.answers(201, "Content-Type: text/plain", body=b"made \0 it \xff")
    result = send(receiver)
    assert (result["status"], result["content_type"], result["is_cut"]) == (201, "text/plain", False)
    assert result["body"] == "made \ufffd it \ufffd"


@pytest.mark.parametrize(("told", "kept"), [("a\0b", "a\ufffdb"), ("é" * 60_000, "é" * 200)])
def test_any_content_type_can_be_stored(receiver: Receiver, told: str, kept: str) -> None:
    """The receiver has done it: a header of its answer must not make the job a dead letter."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {told}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    receiver.talk = lambda connection: connection.sendall(head)
    assert send(receiver)["content_type"] == kept


# What answers mean


def _judged(status: int, **headers: str) -> None:
    kind.judge(Answer(status, {k.replace("_", "-"): v for k, v in headers.items()}, b"", False), "0-88")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_is_done(status: int) -> None:
    _judged(status)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 410, 422])
def test_what_repeating_cannot_mend_is_permanent(status: int) -> None:
    with pytest.raises(Permanent):
        _judged(status)


@pytest.mark.parametrize("status", [401, 403, 405, 408, 409, 425, 500, 501])
def test_what_may_pass_is_transient(status: int) -> None:
    with pytest.raises(Transient):
        _judged(status)


@pytest.mark.parametrize("status", [502, 504])
def test_a_gateways_word_leaves_the_outcome_open(status: int) -> None:
    with pytest.raises(Uncertain):
        _judged(status)


def test_a_conflict_that_names_our_key_is_done() -> None:
    _judged(409, idempotency_key="0-88")


def test_a_conflict_that_names_another_key_is_not_done() -> None:
    with pytest.raises(Transient):
        _judged(409, idempotency_key="0-8")


@pytest.mark.parametrize("status", [429, 503])
def test_overload_waits_as_long_as_the_receiver_asks(status: int) -> None:
    with pytest.raises(Overload) as failed:
        _judged(status, retry_after="17")
    assert failed.value.retry_after_s == 17


def test_a_date_to_come_back_is_understood() -> None:
    with pytest.raises(Overload) as failed:
        _judged(503, retry_after=formatdate(time.time() + 100, usegmt=True))
    assert failed.value.retry_after_s == pytest.approx(100, abs=5)


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "９", "Wed, 99 Foo 2026 00:00:00 GMT"])
def test_a_time_that_makes_no_sense_is_left_out(text: str) -> None:
    with pytest.raises(Overload) as failed:
        _judged(503, retry_after=text)
    assert failed.value.retry_after_s is None


def test_a_redirect_to_this_machine_is_not_followed(receiver: Receiver) -> None:
    receiver.answers(302, f"Location: {receiver.url}")
    with pytest.raises(Permanent, match="not followed"):
        send(receiver)
    assert len(receiver.heard) == 1


def test_an_answer_that_never_comes_is_uncertain(receiver: Receiver) -> None:
    receiver.talk = lambda connection: time.sleep(5)
    with pytest.raises(Uncertain):
        send(receiver, timeout_s=1)


def test_a_receiver_that_is_away_was_sent_nothing(receiver: Receiver) -> None:
    with pytest.raises(Transient):
        kind.post(job('{"url": "http://127.0.0.1:1/"}'))
