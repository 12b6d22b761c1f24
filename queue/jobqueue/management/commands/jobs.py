"""`manage.py jobs …`: find, show, export, cancel and hasten jobs, by the same functions as the admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from jobqueue import exporting, leases, policies, query, reads, retrying, reveal, search, timeline
from jobqueue.ids import format_id, parse_id
from jobqueue.limits import PAGE_DEFAULT, PAGE_MAX, REASON_CHARS_MAX
from jobqueue.search import JobLine
from jobqueue.types import FLEET, Scope
from jobsplatform import merging
from jobsplatform.commands import VerbCommand, actor, verb_parser
from jobsplatform.errors import Invalid
from jobsplatform.exporting import FORMATS, visible
from jobsplatform.instants import format_instant, format_optional
from jobsplatform.wording import one_line, span
from tenants import registry

QUERY_HELP = 'such as "state:dead queue:default age:>10m"; fields: ' + ", ".join(query.FIELDS)
ERROR_SHOWN = 70


class Command(VerbCommand):
    help = "Find, show, export, cancel and hasten jobs."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for add in (_add_list, _add_export, _add_show, _add_reveal, _add_cancel, _add_retry):
            add(verbs)

    def act(self, options: dict[str, Any]) -> None:
        act: Callable[[dict[str, Any]], None] = getattr(self, f"act_{options['verb']}")
        act(options)

    def act_list(self, options: dict[str, Any]) -> None:
        limit = options["limit"]
        if not 1 <= limit <= PAGE_MAX:
            raise Invalid.at("/limit", f"--limit is a whole number from 1 to {PAGE_MAX}.")
        before = None if options["before"] is None else merging.parse_place(options["before"])
        page = search.page(query.parse(options["query"]), scope=_scope(options), before=before, limit=limit)
        for line in page.rows:
            self.stdout.write(_line(line))
        if page.searched_back_to is not None:
            self.stdout.write(f"Searched back to {format_instant(page.searched_back_to)}.")
        if page.unknown:
            self.stdout.write(f"These shards did not answer: {', '.join(map(str, page.unknown))}.")
        more = f", go on with --before {merging.place_text(page.following)}" if page.following else ""
        self.stdout.write(f"{len(page.rows)} shown{more}.")

    def act_export(self, options: dict[str, Any]) -> None:
        pieces = exporting.export(
            query.parse(options["query"]),
            scope=_scope(options),
            form=options["format"],
            actor=actor(),
            reason=_reason(options),
            rows_max=options["rows"],
        )
        for piece in pieces:
            self.stdout.write(piece.decode(), ending="")

    def act_show(self, options: dict[str, Any]) -> None:
        job_id = parse_id(options["job"])
        view = reads.job(job_id, scope=FLEET)
        told = timeline.history(job_id, scope=FLEET)
        now = reads.clock()
        self.stdout.write(f"Job {options['job']} ({view.kind}) is {view.state}.")
        if told.is_cut:
            self.stdout.write("Only the newest of its history:")
        for event in timeline.events(view, told):
            seconds = event.seconds(now)
            took = "" if seconds is None else f" for {span(seconds)}"
            generation = "" if event.generation is None else f" [generation {event.generation}]"
            said = "; ".join(filter(None, [event.detail, _short(event.message)]))
            line = f"{format_instant(event.at)}  {event.title}{took}{generation}  {said}"
            self.stdout.write(visible(one_line(line)).rstrip())

    def act_reveal(self, options: dict[str, Any]) -> None:
        payload, ref = reveal.payload(
            parse_id(options["job"]), scope=FLEET, actor=actor(), reason=_reason(options)
        )
        self.stdout.write(visible(payload) if payload is not None else f"reference {visible(ref or '')}")

    def act_cancel(self, options: dict[str, Any]) -> None:
        done = leases.cancel(parse_id(options["job"]), actor=actor(), reason=_reason(options))
        asked = "was asked to stop" if done.cancel_requested else "is cancelled"
        self.stdout.write(f"Job {options['job']} {asked}.")

    def act_retry(self, options: dict[str, Any]) -> None:
        done = retrying.retry_now(parse_id(options["job"]), actor=actor(), reason=_reason(options))
        self.stdout.write(
            f"Job {options['job']} is ready; it would have waited until {format_optional(done.due_at)} ({done.reason})."
        )


# Arguments


def _add_list(verbs: Any) -> None:
    parser = verb_parser(verbs, "list", help="jobs that a query finds, newest first")
    parser.add_argument("query", nargs="?", default="", metavar="QUERY", help=QUERY_HELP)
    parser.add_argument("--tenant", metavar="SLUG", help="of one tenant alone")
    parser.add_argument("--limit", type=int, default=PAGE_DEFAULT)
    parser.add_argument("--before", metavar="PLACE", help="as the page before said")


def _add_export(verbs: Any) -> None:
    parser = verb_parser(
        verbs, "export", help="the same as CSV or JSON lines, on the standard output; audited"
    )
    parser.add_argument("query", nargs="?", default="", metavar="QUERY", help=QUERY_HELP)
    parser.add_argument("--tenant", metavar="SLUG", help="of one tenant alone")
    parser.add_argument("--format", choices=list(FORMATS), default="csv")
    parser.add_argument("--rows", type=int, default=exporting.ROWS_MAX, help="at most so many")
    _add_reason(parser)


def _add_show(verbs: Any) -> None:
    parser = verb_parser(verbs, "show", help="what a job has been through")
    parser.add_argument("job", metavar="JOB", help="its id")


def _add_reveal(verbs: Any) -> None:
    parser = verb_parser(verbs, "reveal", help="show a job's payload; audited")
    parser.add_argument("job", metavar="JOB", help="its id")
    _add_reason(parser)


def _add_cancel(verbs: Any) -> None:
    parser = verb_parser(verbs, "cancel", help="end a waiting job, or ask a running one to stop")
    parser.add_argument("job", metavar="JOB", help="its id")
    _add_reason(parser)


def _add_retry(verbs: Any) -> None:
    parser = verb_parser(verbs, "retry", help="let a job that waits for an instant start at once")
    parser.add_argument("job", metavar="JOB", help="its id")
    _add_reason(parser)


def _add_reason(parser: CommandParser) -> None:
    parser.add_argument("--reason", default="", help="why, for the audit")


# Values and lines


def _scope(options: dict[str, Any]) -> Scope:
    slug = options["tenant"]
    return FLEET if slug is None else Scope(tenant_id=registry.get(slug).pk)


def _reason(options: dict[str, Any]) -> str:
    reason: str = options["reason"]
    if len(reason) > REASON_CHARS_MAX:
        raise Invalid.at("/reason", f"--reason has at most {REASON_CHARS_MAX:,} characters.")
    return reason


def _line(line: JobLine) -> str:
    queue = policies.names({line.queue_id}).get(line.queue_id, f"#{line.queue_id}")
    tries = f"{line.attempts_used} of {line.max_attempts}"
    said = ": ".join(filter(None, [line.error_class, _short(line.error or "")]))
    parts = [format_id(line.job_id), format_instant(line.created_at), line.state, f"{queue}/{line.priority}"]
    return visible("  ".join([*map(str, parts), line.kind, tries, said]).rstrip())


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= ERROR_SHOWN else f"{line[: ERROR_SHOWN - 1]}…"
