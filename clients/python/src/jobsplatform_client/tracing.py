"""Traces that go on from whoever enqueues to the handler: spans where `opentelemetry-api` is there, else nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobsplatform_client.values import Lease

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, SpanKind
except ImportError:
    has_spans = False
else:
    has_spans = True


def current() -> str | None:
    """The W3C `traceparent` of the span that is under way here; None without one."""
    if not has_spans:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@contextmanager
def processing(lease: Lease) -> Iterator[None]:
    """A CONSUMER span of one attempt: in the trace that the job came with, and linked to the span that sent it."""
    if not has_spans:
        yield
        return
    carrier = {} if lease.traceparent is None else {"traceparent": lease.traceparent}
    parent = propagate.extract(carrier)
    sender = trace.get_current_span(parent).get_span_context()
    facts: dict[str, str | int] = {
        "messaging.system": "jobsplatform",
        "messaging.destination.name": lease.queue,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": lease.job_id,
        "jobsplatform.generation": lease.generation,
    }
    links = [Link(sender)] if carrier and sender.is_valid else []
    with trace.get_tracer("jobsplatform_client").start_as_current_span(
        f"process {lease.queue}", context=parent, kind=SpanKind.CONSUMER, attributes=facts, links=links
    ):
        yield
