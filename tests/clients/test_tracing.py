"""The client goes on with traces: from the span around an enqueue, and into the handler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from jobsplatform_client import NewJob, tracing
from jobsplatform_client.values import Lease

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    yield found
    provider.shutdown()


def lease(**changes: Any) -> Lease:
    values: dict[str, Any] = dict.fromkeys(Lease.__dataclass_fields__)
    return Lease(**values | {"job_id": "0-1", "queue": "mail", "generation": 2} | changes)


def test_a_job_made_within_a_span_carries_it(exporter: InMemorySpanExporter) -> None:
    with trace.get_tracer("a").start_as_current_span("checkout"):
        current = tracing.current()
        assert current is not None
        assert NewJob("a", 1).members("k")["traceparent"] == current
        assert NewJob("a", 1, traceparent=PARENT).members("k")["traceparent"] == PARENT
    assert "traceparent" not in NewJob("a", 1).members("k")


def test_a_handler_runs_within_the_job_s_trace_and_is_linked_to_its_sender(
    exporter: InMemorySpanExporter,
) -> None:
    with tracing.processing(lease(traceparent=PARENT)):
        current = tracing.current()
    (span,) = exporter.get_finished_spans()
    assert current is not None
    assert current.split("-")[1] == PARENT.split("-")[1]
    assert span.name == "process mail"
    assert f"{span.links[0].context.span_id:016x}" == PARENT.split("-")[2]


def test_a_job_without_a_trace_begins_one(exporter: InMemorySpanExporter) -> None:
    with tracing.processing(replace(lease(), traceparent=None)):
        pass
    (span,) = exporter.get_finished_spans()
    assert (span.parent, list(span.links)) == (None, [])


def test_without_opentelemetry_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "has_spans", False)
    assert tracing.current() is None
    with tracing.processing(lease(traceparent=PARENT)):
        pass
