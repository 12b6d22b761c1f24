"""One trace from the producer's request to the handler, and log lines that name it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.contextvars import get_contextvars

from jobqueue.models import Job
from jobqueue.posting import kind as posting
from jobqueue.posting import payload, target
from jobqueue.worker.context import JobContext
from jobsplatform import public, tracing
from jobsplatform.http import Reply
from tenants import signing
from tests import cast
from tests.api_cast import caller, code
from tests.jobqueue.worker.fake import make_lease, until
from tests.jobqueue.worker.test_crew import Idle, make_crew

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a site's SDK would get to see."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("test"))
    monkeypatch.setattr(tracing, "_is_recorded", lambda: True)
    yield exporter
    provider.shutdown()


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


# What a traceparent is


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-a-b-01",
        PARENT.upper(),
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{PARENT}-more",
        f" {PARENT}",
        f"{PARENT}\n",
    ],
)
def test_what_is_no_traceparent_is_refused_in_a_body(text: str) -> None:
    assert not tracing.is_valid(text)


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (PARENT, PARENT),
        (f" {PARENT} ", PARENT),
        (f"{PARENT}-more", None),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-what-comes", f"cc-{TRACE}-00f067aa0ba902b7-01"),
        (f"cc-{TRACE}-00f067aa0ba902b7-01what", None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_a_header_that_means_nothing_is_ignored_and_a_later_version_cut(
    header: str | None, kept: str | None
) -> None:
    assert tracing.sent(header) == kept


# Through HTTP


@pytest.mark.django_db
def test_a_body_s_traceparent_comes_back_with_the_claim() -> None:
    api = caller("acme", "produce", "work")
    api.enqueue(traceparent=PARENT)
    assert api.claim()[0]["traceparent"] == PARENT


@pytest.mark.django_db
def test_a_malformed_traceparent_in_a_body_is_refused() -> None:
    response = caller("acme", "produce").post(
        "/v1/jobs", {"kind": "a", "payload": 1, "traceparent": "00-a-b-01"}
    )
    assert code(response) == (400, "invalid")
    assert response.json()["errors"][0]["pointer"] == "/traceparent"


@pytest.mark.django_db
def test_the_request_s_header_is_the_default_and_a_bad_one_no_reason_to_refuse() -> None:
    api = caller("acme", "produce", "work")
    assert api.post("/v1/jobs", {"kind": "a", "payload": 1}, traceparent=PARENT).status_code == 201
    assert api.post("/v1/jobs", {"kind": "a", "payload": 1}, traceparent="junk").status_code == 201
    batch = {"jobs": [{"kind": "a", "payload": 1}]}
    assert api.post("/v1/jobs/batch", batch, traceparent=PARENT).status_code == 200
    assert sorted(str(lease["traceparent"]) for lease in api.claim(limit=3)) == [PARENT, PARENT, "None"]


@pytest.mark.django_db
def test_a_repeat_from_another_trace_is_the_same_request() -> None:
    api = caller("acme", "produce")
    body = {"kind": "a", "payload": 1, "request_key": "once"}
    assert api.post("/v1/jobs", body, traceparent=PARENT).status_code == 201
    assert api.post("/v1/jobs", body).status_code == 200


# Spans


@pytest.mark.django_db
def test_one_trace_leads_from_the_request_to_the_handler(spans: InMemorySpanExporter) -> None:
    caller("acme", "produce").post("/v1/jobs", {"kind": "k", "payload": 1}, traceparent=PARENT)
    lease = cast.claim(now=None)[0]
    seen: list[str | None] = []
    crew = make_crew(1, lambda job: seen.append(tracing.current()))
    crew.add([JobContext(lease, 0, 0.0, Idle())])
    until(lambda: len(crew.ended) == 1)
    sent, processed = spans.get_finished_spans()
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (sent.name, trace_of(sent), trace_of(processed)) == ("send default", TRACE, TRACE)
    assert seen == [f"00-{TRACE}-{processed.context.span_id:016x}-01"]
    assert processed.links[0].context.span_id == sent.context.span_id
    assert processed.attributes is not None
    assert processed.attributes["messaging.message.id"] == f"0-{lease.job_id}"
    assert Job.objects.using(cast.SHARD).get().traceparent is not None


@pytest.mark.django_db
def test_a_batch_is_one_span_that_says_how_many(spans: InMemorySpanExporter) -> None:
    items = [{"kind": "a", "payload": number} for number in range(3)]
    caller("acme", "produce").post("/v1/jobs/batch", {"jobs": items})
    (sent,) = spans.get_finished_spans()
    assert sent.attributes is not None
    assert sent.attributes["messaging.batch.message_count"] == 3
    (traceparent,) = set(Job.objects.using(cast.SHARD).values_list("traceparent", flat=True))
    assert traceparent is not None
    assert trace_of(sent) in traceparent


def test_a_failed_attempt_is_a_failed_span(spans: InMemorySpanExporter) -> None:
    def act(job: JobContext) -> None:
        raise ValueError("boom")

    crew = make_crew(1, act)
    crew.add([JobContext(make_lease(1, "k", traceparent=PARENT), 0, 0.0, Idle())])
    until(lambda: len(crew.ended) == 1)
    (span,) = spans.get_finished_spans()
    assert (span.status.status_code, trace_of(span)) == (StatusCode.ERROR, TRACE)


def test_a_queue_whose_name_cannot_be_read_costs_no_job(spans: InMemorySpanExporter) -> None:
    class Away(Idle):
        def queue_name(self, queue_id: int) -> str:
            raise ConnectionError

    crew = make_crew(1, lambda job: "done")
    crew.add([JobContext(make_lease(1, "k"), 0, 0.0, Away())])
    until(lambda: len(crew.ended) == 1)
    assert type(crew.ended[0][1]).__name__ == "Complete"


def test_a_call_outside_carries_the_span_or_else_what_the_job_came_with(
    monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter
) -> None:
    monkeypatch.setattr(signing, "secrets_of", lambda tenant_id: [])
    monkeypatch.setattr(signing, "headers", lambda *_: {})
    job = JobContext(make_lease(1, "http.post", traceparent=PARENT), 0, 0.0, Idle())
    call = payload.Call(target.parse("https://example.org/"), "1", {}, 1)

    def sent() -> str:
        return posting._headers(job, call, b"1")["traceparent"]

    assert sent() == PARENT
    with tracing.processing(lambda: "q", PARENT, lambda: {"job_id": "0-1", "generation": 1}):
        assert sent() == tracing.current() != PARENT
        assert sent().split("-")[1] == TRACE


def test_without_opentelemetry_the_traceparent_travels_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "has_spans", False)
    with tracing.producing("q", PARENT) as carried:
        assert carried == PARENT
    with tracing.processing(lambda: "q", PARENT, lambda: {"job_id": "0-1", "generation": 1}):
        assert tracing.current() is None
    tracing.flush()


# Log lines


def test_a_line_that_a_handler_logs_names_job_generation_and_trace() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    formatter = dict(settings.LOGGING["formatters"]["json"])
    handler.setFormatter(formatter.pop("()")(**formatter))
    logger = logging.getLogger("handlers.of.a.site")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    crew = make_crew(1, lambda job: logger.info("half way"))
    crew.add([JobContext(make_lease(7, "k", traceparent=PARENT), 0, 0.0, Idle())])
    until(lambda: len(crew.ended) == 1)
    logger.removeHandler(handler)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["job_id"], line["generation"], line["trace_id"]) == (
        "half way",
        "0-7",
        1,
        TRACE,
    )


@pytest.mark.django_db
def test_a_line_of_a_request_names_it_and_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def act(self: object, call: object) -> Reply:
        seen.append(get_contextvars())
        return Reply(200, {})

    monkeypatch.setattr(public.ShowLife, "act", act)
    caller("acme", "read").get("/livez", traceparent=PARENT, x_request_id="r-1")
    assert (seen[0]["request_id"], seen[0]["trace_id"]) == ("r-1", TRACE)


def test_nobody_is_asked_for_a_span_that_nobody_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", lambda: pytest.fail("a span was made"))
    with (
        tracing.producing("mail", None) as carried,
        tracing.processing(lambda: "mail", None, lambda: {"job_id": 1}),
    ):
        assert carried is None
