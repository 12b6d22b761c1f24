"""`manage.py audit …`: who did what, as a list or as a file; by the same functions as the admin."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from jobsplatform import merging
from jobsplatform.commands import VerbCommand, actor, verb_parser
from jobsplatform.errors import Invalid
from jobsplatform.exporting import FORMATS, visible
from jobsplatform.instants import format_instant, parse_instant
from jobsplatform.wording import one_line
from tenants import auditlog, registry
from tenants.auditlog import Entry, Filter

LIMIT_MAX = 200
LIMIT_DEFAULT = 50


class Command(VerbCommand):
    help = "Look through the audit, or take it away as a file; `verifyaudit` checks it."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verb_parser(verbs, "list", help="entries, newest first")
        _add_filter(listing)
        listing.add_argument("--limit", type=int, default=LIMIT_DEFAULT)
        listing.add_argument("--before", metavar="PLACE", help="as the page before said")
        export = verb_parser(verbs, "export", help="the same as CSV or JSON lines; that is an entry too")
        _add_filter(export)
        export.add_argument("--format", choices=list(FORMATS), default="csv")
        export.add_argument("--rows", type=int, default=auditlog.ROWS_MAX, help="at most so many")
        export.add_argument("--reason", default="", help="why, for the audit")

    def act(self, options: dict[str, Any]) -> None:
        act: Callable[[dict[str, Any]], None] = getattr(self, f"act_{options['verb']}")
        act(options)

    def act_list(self, options: dict[str, Any]) -> None:
        if not 1 <= options["limit"] <= LIMIT_MAX:
            raise Invalid.at("/limit", f"--limit is a whole number from 1 to {LIMIT_MAX}.")
        before = None if options["before"] is None else merging.parse_place(options["before"])
        page = auditlog.page(_filter(options), tenant_id=None, before=before, limit=options["limit"])
        for entry in page.rows:
            self.stdout.write(_line(entry))
        if page.searched_back_to is not None:
            self.stdout.write(f"Searched back to {format_instant(page.searched_back_to)}.")
        more = f", go on with --before {merging.place_text(page.following)}" if page.following else ""
        self.stdout.write(f"{len(page.rows)} shown{more}.")

    def act_export(self, options: dict[str, Any]) -> None:
        pieces = auditlog.export(
            _filter(options),
            tenant_id=None,
            form=options["format"],
            actor=actor(),
            reason=options["reason"],
            rows_max=options["rows"],
        )
        for piece in pieces:
            self.stdout.write(piece.decode(), ending="")


def _add_filter(parser: CommandParser) -> None:
    parser.add_argument("--actor", help="such as user:ops")
    parser.add_argument("--action", help="such as job.redrive, or job. for all that begin so")
    parser.add_argument("--target", help="such as job:0-42")
    parser.add_argument("--tenant", metavar="SLUG", help="of one tenant's chain alone")
    parser.add_argument("--since", metavar="INSTANT", help="RFC 3339, such as 2030-01-31T08:00:00Z")
    parser.add_argument("--until", metavar="INSTANT")


def _filter(options: dict[str, Any]) -> Filter:
    slug = options["tenant"]
    return Filter(
        tenant_id=None if slug is None else registry.get(slug).pk,
        actor=options["actor"],
        action=options["action"],
        target=options["target"],
        since=_instant(options, "since"),
        until=_instant(options, "until"),
    )


def _instant(options: dict[str, Any], name: str) -> datetime | None:
    if options[name] is None:
        return None
    try:
        return parse_instant(options[name])
    except ValueError as error:
        raise Invalid.at(f"/{name}", f"--{name} is no instant: {error}.") from None


def _line(entry: Entry) -> str:
    said = f"{format_instant(entry.at)}  {entry.name}  {entry.actor}  {entry.action}  {entry.target}"
    return visible(one_line(f"{said}  {entry.reason}").rstrip())
