"""Looking through the audit: pages over every database, the export, and checking chains step by step.

Every entry of a tenant's is shown to whoever may see that tenant; `tenant_id` is an argument that no filter widens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, transaction

from jobsplatform import database, exporting, merging, sql
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound
from jobsplatform.exporting import Cell
from tenants import audit
from tenants.audit import Tampered
from tenants.models import Tenant

WINDOW: Final = 5_000  # entries that one read looks at in a database
READ_SECONDS: Final = 3  # of one statement; then the database counts as one that did not answer
MARGIN: Final = timedelta(minutes=1)  # by which ids may be out of the order of their instants
ROWS_MAX: Final = 100_000  # of an export
ROWS_AT_ONCE: Final = 500
CHECK_SECONDS: Final = 1.5  # of one step of checking the chains
BROKEN_SHOWN_MAX: Final = 100

COLUMNS: Final = (
    "database",
    "id",
    "at",
    "tenant",
    "actor",
    "action",
    "target",
    "reason",
    "details",
    "before_hash",
    "after_hash",
    "request_id",
    "entry_hash",
)


class Entry(NamedTuple):
    """An entry, and in which database it stands; hashes are hex."""

    alias: str
    entry_id: int
    tenant_id: int | None
    at: datetime
    actor: str
    action: str
    target: str
    reason: str
    details: dict[str, Any]
    before_hash: str | None
    after_hash: str | None
    request_id: str
    entry_hash: str

    @property
    def name(self) -> str:
        """As an audit id is written: which database, and which entry there."""
        return f"{self.alias}-{self.entry_id}"


Page = merging.Page[Entry]
Place = merging.Place
_Part = merging.Part[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which entries; None: any. An action that ends in a dot means all that begin so. `is_platform`: of no tenant."""

    tenant_id: int | None = None
    is_platform: bool = False
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all that an index leads to is shown."""
        return all(part is None for part in (self.actor, self.action, self.since, self.until))


def databases() -> list[str]:
    """The aliases of all databases that hold entries; a list's place names them by their position."""
    return list(dict.fromkeys(["default", *database.aliases().values()]))


def page(wanted: Filter, *, tenant_id: int | None, before: Place | None = None, limit: int) -> Page:
    """A page of entries, newest first. `tenant_id`: whose entries the asker may see (None: everybody's)."""
    if tenant_id is not None and (wanted.is_platform or wanted.tenant_id not in (None, tenant_id)):
        return Page([], None)
    parts = []
    for number, alias in enumerate(databases()):
        below = (before or {}).get(number)
        if below == 0:
            parts.append(_Part(number, [], 0))
            continue
        try:
            parts.append(_read(number, alias, wanted, tenant_id, below, limit))
        except (DatabaseError, JobsPlatformError):
            parts.append(_Part(number, [], None, began=below))
    return merging.merged(parts, limit=limit, at=lambda entry: entry.at, id_of=lambda entry: entry.entry_id)


def _read(
    number: int, alias: str, wanted: Filter, tenant_id: int | None, below: int | None, limit: int
) -> _Part:
    whose = wanted.tenant_id if tenant_id is None else tenant_id
    with sql.bounded_read(alias, READ_SECONDS):
        above = None
        if wanted.until is not None:
            latest = _id_at(wanted.until + MARGIN, alias)
            below = latest if below is None else min(below, latest)
        if wanted.since is not None:
            above = _id_at(wanted.since - MARGIN, alias) - 1
        params = {
            "tenant_id": whose,
            "is_platform": wanted.is_platform,
            "target": wanted.target,
            "actor": wanted.actor,
            "action": wanted.action,
            "since": wanted.since,
            "until": wanted.until,
            "before": below,
            "above": above,
            "window": limit + 1 if wanted.is_plain else max(WINDOW, limit + 1),
            "limit": limit + 1,
        }
        ids, window_to, is_last = sql.rows("tenants/audit_page", params, alias=alias)[0]
        entries = entries_of(ids[:limit], alias=alias, tenant_id=whose)
        if len(ids) > limit:
            return _Part(number, entries, ids[limit - 1])
        if is_last or window_to is None:
            return _Part(number, entries, 0)
        reached = entries_of([window_to], alias=alias, tenant_id=whose)
        return _Part(number, entries, window_to, reached[0].at if reached else None)


def _id_at(at: datetime, alias: str) -> int:
    return int(sql.rows("tenants/audit_id_at", {"at": at}, alias=alias)[0][0])


def entries_of(ids: list[int], *, alias: str, tenant_id: int | None) -> list[Entry]:
    """Entries of one database by their ids, newest first."""
    if not ids:
        return []
    rows = sql.rows("tenants/audit_lines", {"ids": ids, "tenant_id": tenant_id}, alias=alias)
    return [Entry(alias, *row) for row in rows]


def entry(name: str, *, tenant_id: int | None) -> Entry:
    """One entry by its name (`default-42`). Raises NotFound."""
    alias, _, text = name.rpartition("-")
    if alias not in databases() or not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise NotFound
    found = entries_of([int(text)], alias=alias, tenant_id=tenant_id)
    if not found:
        raise NotFound
    return found[0]


# Export


def export(
    wanted: Filter,
    *,
    tenant_id: int | None,
    form: str,
    actor: str,
    reason: str = "",
    rows_max: int = ROWS_MAX,
) -> Iterator[bytes]:
    """What a filter finds now, newest first, as CSV or JSON lines; that it was exported is an entry too.

    At most `rows_max` entries; where it was cut off, a last line says so. Raises Invalid.
    """
    if not 1 <= rows_max <= ROWS_MAX:
        raise Invalid.at("/rows_max", f"An export has 1 to {ROWS_MAX:,} rows.")
    pieces = exporting.written(form, COLUMNS, _rows(wanted, tenant_id, rows_max))
    chosen = {name: str(value) for name, value in _said(wanted).items()}
    with transaction.atomic():
        audit.record(
            "audit.export",
            "audit",
            actor=actor,
            tenant_id=tenant_id,
            reason=reason,
            details={"filter": chosen, "format": form, "rows_max": rows_max},
        )
    return pieces


def _said(wanted: Filter) -> dict[str, Any]:
    return {
        name: value
        for name in Filter.__dataclass_fields__
        if (value := getattr(wanted, name)) not in (None, False)
    }


def _rows(wanted: Filter, tenant_id: int | None, rows_max: int) -> Iterator[list[Cell]]:
    place: Place | None = None
    left = rows_max
    slugs = slugs_of_all()
    while True:
        found = page(wanted, tenant_id=tenant_id, before=place, limit=min(ROWS_AT_ONCE, left))
        for one in found.rows:
            yield [
                one.alias,
                one.entry_id,
                one.at,
                None if one.tenant_id is None else slugs.get(one.tenant_id, f"#{one.tenant_id}"),
                one.actor,
                one.action,
                one.target,
                one.reason,
                json.dumps(one.details),
                one.before_hash,
                one.after_hash,
                one.request_id,
                one.entry_hash,
            ]
        left -= len(found.rows)
        if found.unknown:
            yield ["# a database did not answer: its entries are missing", *[None] * (len(COLUMNS) - 1)]
            return
        if found.following is None:
            return
        if left <= 0:
            yield [
                f"# cut off after {rows_max:,} rows: narrow the filter",
                *[None] * (len(COLUMNS) - 1),
            ]
            return
        place = found.following
        database.give_connections_back()


def slugs_of_all() -> dict[int, str]:
    """Tenant id → slug."""
    return dict(Tenant.objects.values_list("pk", "slug"))


# Checking


@dataclass(frozen=True, slots=True)
class Step:
    """How far a check of the chains has come: `alias` and `above` are where it goes on (None: it is through)."""

    checked_to: str
    broken: list[str]
    alias: str | None
    above: int


def check_step(alias: str | None = None, above: int = 0) -> Step:
    """Check entries for about a second and a half from a place on; the seals come last. Raises NotFound.

    A chain of millions takes many steps, each of which answers at once.
    """
    order = databases()
    alias = alias or order[0]
    if alias not in order:
        raise NotFound
    broken: list[str] = []
    ends = time.monotonic() + CHECK_SECONDS
    rows: list[Any] = []
    while time.monotonic() < ends:
        rows = sql.rows("tenants/audit_check", {"above": above, "limit": audit.CHECK_BATCH}, alias=alias)
        if not rows:
            break
        *bad, (above, *_) = rows
        for entry_id, tenant_id, action, target, is_unsealed, _ in bad[:BROKEN_SHOWN_MAX]:
            broken.append(str(Tampered(alias, entry_id, tenant_id, action, target, is_unsealed)))
    if rows:
        return Step(f"{alias}-{above}", broken, alias, above)
    following = order.index(alias) + 1
    if following < len(order):
        return Step(f"the end of {alias}", broken, order[following], 0)
    missing = [str(found) for found, _ in zip(audit.verify_seals(), range(BROKEN_SHOWN_MAX), strict=False)]
    return Step("the end, and every seal", broken + missing, None, 0)
