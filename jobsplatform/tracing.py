"""Traces that go on from a producer's request to the handler, days later perhaps: W3C `traceparent`, kept with the job.

Spans are made where `opentelemetry-api` is installed (the extra `otel`) and the site has configured an SDK, by
`opentelemetry-instrument` or in its own code. Without either, a `traceparent` travels all the same, and log lines name
its trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import Any, Final

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags
except ImportError:
    has_spans = False  # the extra is not installed
else:
    has_spans = True

SYSTEM: Final = "jobsplatform"
FLUSH_MS: Final = 1_000
_WELL_FORMED = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
).match
Facts = Callable[[], Mapping[str, Any]]
_attempt: ContextVar[_Attempt | None] = ContextVar("attempt", default=None)
_VERSION_00 = 55  # characters; a later version may have more behind a hyphen, which is not kept


def is_valid(text: str) -> bool:
    """Whether this is a `traceparent` of W3C Trace Context, version 00 or one that reads the same."""
    return _WELL_FORMED(text) is not None


def sent(header: str | None) -> str | None:
    """The `traceparent` of a request's header; None for none, or one that means nothing (it is then ignored)."""
    text = (header or "").strip()
    if text.startswith("00-") or len(text) <= _VERSION_00:
        return text if is_valid(text) else None
    cut = text[:_VERSION_00]  # of a later version: what version 00 knows of it
    return cut if text[_VERSION_00] == "-" and is_valid(cut) else None


def logged(traceparent: str | None) -> dict[str, str]:
    """What log lines say of a trace: nothing without a valid `traceparent`."""
    if traceparent is None or not is_valid(traceparent):
        return {}
    return {"trace_id": traceparent.split("-")[1]}


def current() -> str | None:
    """The `traceparent` of the span that is under way in this thread; None without one."""
    if not has_spans:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@contextmanager
def producing(queue: str, parent: str | None, *, count: int = 1) -> Iterator[str | None]:
    """A PRODUCER span of an enqueue, within the trace of `parent`; gives the `traceparent` that jobs should carry."""
    if not has_spans or (parent is None and not _is_recorded()):
        yield parent or current()
        return
    facts: dict[str, Any] = _facts(queue, "send")
    if count > 1:
        facts["messaging.batch.message_count"] = count
    with _tracer().start_as_current_span(
        f"send {queue}", context=_context(parent), kind=SpanKind.PRODUCER, attributes=facts
    ):
        yield current() or parent


def processing(
    queue_of: Callable[[], str], traceparent: str | None, facts: Facts
) -> AbstractContextManager[None]:
    """A CONSUMER span of one attempt: in the trace that the job came with, and linked to the span that sent it.

    `facts` are what log lines of this thread say meanwhile: `job_id`, `generation` and the like; `trace_id` is added.
    They are asked for when there is a line: most attempts log nothing.
    """
    attempt = _Attempt(facts, traceparent)
    if not has_spans or (traceparent is None and not _is_recorded()):
        return attempt
    return _spanned(attempt, queue_of)


def add_attempt(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog: what a log line says of the attempt that its thread is at."""
    attempt = _attempt.get()
    if attempt is not None:
        for name, value in attempt.told().items():
            line.setdefault(name, value)
    return line


class _Attempt:
    """While it is entered, log lines of this thread tell of it."""

    __slots__ = ("_before", "facts", "traceparent")
    _before: Token[_Attempt | None]

    def __init__(self, facts: Facts, traceparent: str | None) -> None:
        self.facts, self.traceparent = facts, traceparent

    def __enter__(self) -> None:
        self._before = _attempt.set(self)

    def __exit__(self, *_: object) -> None:
        _attempt.reset(self._before)

    def told(self) -> dict[str, Any]:
        return {**self.facts(), **logged(self.traceparent)}


@contextmanager
def _spanned(attempt: _Attempt, queue_of: Callable[[], str]) -> Iterator[None]:
    with attempt:
        job, parent, queue = attempt.facts(), _context(attempt.traceparent), _name(queue_of)
        facts = _facts(queue, "process") | {
            "messaging.message.id": str(job["job_id"]),
            "jobsplatform.generation": job["generation"],
        }
        links = () if parent is None else (Link(trace.get_current_span(parent).get_span_context()),)
        with _tracer().start_as_current_span(
            f"process {queue}", context=parent, kind=SpanKind.CONSUMER, attributes=facts, links=links
        ):
            yield


def flush() -> None:
    """Send what spans have ended; for processes that end without Python's own last steps."""
    if has_spans:
        send = getattr(trace.get_tracer_provider(), "force_flush", None)
        if send is not None:
            send(FLUSH_MS)


def _name(queue_of: Callable[[], str]) -> str:
    """A span's name must not cost a job: a database that is away leaves it unnamed."""
    try:
        return queue_of()
    except Exception:
        return "?"


def _is_recorded() -> bool:
    """Whether somebody has set up where spans go. Else one only carries a trace on, if there is one."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _tracer() -> Any:
    return trace.get_tracer("jobsplatform")


def _facts(queue: str, operation: str) -> dict[str, Any]:
    """By the semantic conventions of messaging."""
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _context(traceparent: str | None) -> Any:
    """The remote context that a `traceparent` names; None: whatever is under way."""
    if traceparent is None or not is_valid(traceparent):
        return None
    _, trace_hex, span_hex, flags = traceparent.split("-")
    remote = SpanContext(
        int(trace_hex, 16), int(span_hex, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return trace.set_span_in_context(NonRecordingSpan(remote))
