"""Registered kinds of job: what their handlers' code declares and operators set, and its push to the shards.

The control database owns a `JobKind`; each shard has the newest version that it was told (`KindRow`), which the
statements read. A kind needs no registration. Whether one is registered is asked of the shard by the statement that
stores a job, so it costs no trip and absence is never remembered: what a process remembers of a kind is only ever
used with the version that the statement finds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import CharField, F
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from jobqueue import policies
from jobqueue.declarations import MESSAGE, Declaration, Declared
from jobqueue.models import JobKind, KindRow
from jobqueue.payloads import BadSchema, Checker
from jobqueue.posting import payload as posting
from jobsplatform import database, sql
from jobsplatform.errors import FieldError, Invalid, JobsPlatformError, NotFound, Unavailable
from tenants import audit

SETTINGS: Final = tuple(field.name for field in fields(Declaration))
CACHE_SECONDS: Final = 5.0  # of the kinds' own queues: the contract's bound for changes
KNOWN_MAX: Final = 10_000  # kinds and shards that a process remembers
CODE_S: Final = ("declared", "declared_by")  # fields that operators do not set
SUBJECT: Final = "kind:{}"  # of audit entries

_PUSHED: Final = tuple(field.name for field in KindRow._meta.concrete_fields if field.name != "kind")


@dataclass(frozen=True, slots=True)
class Kind:
    """What an enqueue must know of a registered kind."""

    version: int
    checker: Checker | None
    dependency: str | None


_known: dict[tuple[str, str], Kind] = {}  # (alias, kind)
_queues: tuple[float, dict[str, str]] = (0.0, {})  # until when; kind → queue


# Kinds of ours whose payloads need more than a schema can say.
_BUILT_IN: Final[Mapping[str, Callable[[str | None], Invalid | None]]] = {posting.KIND: posting.refusal}


# Checking


def built_in_refusal(kind: str, payload: str | None) -> Invalid | None:
    """Why no job of a built-in kind may have this payload (None: it is a reference)."""
    check = _BUILT_IN.get(kind)
    return None if check is None else check(payload)


def remembered(kind: str, *, alias: str) -> Kind | None:
    """What this process last read of a kind: good only if the statement finds the same version."""
    return _known.get((alias, kind))


def is_unchecked(kind: str, *, alias: str) -> bool:
    """Whether this process knows of nothing that payloads of a kind must satisfy. The statement knows better."""
    return (alias, kind) not in _known and kind not in _BUILT_IN


def load(kinds: Iterable[str], *, alias: str) -> dict[str, Kind]:
    """Those of `kinds` that are registered, as a shard has them now."""
    rows = sql.rows("jobqueue/kinds", {"kinds": sorted(set(kinds))}, alias=alias)
    if len(_known) + len(rows) > KNOWN_MAX:
        _known.clear()
    found = {}
    for name, version, schema, dependency in rows:
        held = _known.get((alias, name))
        if held is None or held.version != version:
            held = Kind(version, None if schema is None else Checker(json.loads(schema)), dependency)
        found[name] = _known[alias, name] = held
    return found


def check_payload(kind: str, payload: str, *, alias: str | None = None) -> None:
    """Raise Invalid, with pointers under `/payload`, for a payload (JSON text) that its kind's schema refuses.

    `alias`: the shard that is asked what the schema is; without it, the first.
    """
    if (refusal := built_in_refusal(kind, payload)) is not None:
        raise refusal
    shards = database.aliases()
    found = load([kind], alias=shards[min(shards)] if alias is None else alias).get(kind)
    refusal = None if found is None or found.checker is None else found.checker.refusal(payload)
    if refusal is not None:
        raise refusal


def check_ahead(kind: str, payload: str) -> None:
    """As `check_payload`, by what the control database has: for jobs to come, whose shard may be away now."""
    refusal = built_in_refusal(kind, payload)
    registered = JobKind.objects.filter(name=kind).first()
    schema = None if registered is None else effective(registered)["payload_schema"]
    if refusal is None and schema is not None:
        refusal = Checker(schema).refusal(payload)
    if refusal is not None:
        raise refusal


def queue_of(kind: str) -> str | None:
    """The queue where jobs of this kind go when the request names none, at most five seconds old.

    While the control database is away, as it was last known: its loss must not stop what goes to the shards.
    """
    global _queues
    until, found = _queues
    if until <= time.monotonic():
        try:
            found = _read_queues()
        except (OperationalError, InterfaceError):
            if not until:
                raise
        _queues = (time.monotonic() + CACHE_SECONDS, found)
    return found.get(kind)


def _read_queues() -> dict[str, str]:
    """Kind → queue, of those that have one: an operator's before the code's."""
    declared = KeyTextTransform("queue", "declared")
    kinds = JobKind.objects.annotate(goes_to=Coalesce("queue", declared, output_field=CharField()))
    return dict(kinds.filter(goes_to__isnull=False).values_list("name", "goes_to"))


def forget() -> None:
    """Drop what is remembered."""
    global _queues
    _known.clear()
    _queues = (0.0, {})


# Reading


def effective(kind: JobKind) -> dict[str, Any]:
    """Each setting's value: an operator's before the code's. None: the queue's, or nothing."""
    values = {name: getattr(kind, name) for name in SETTINGS}
    return {name: kind.declared.get(name) if value is None else value for name, value in values.items()}


def listing() -> list[JobKind]:
    """Every registered kind, by name."""
    return list(JobKind.objects.order_by("name"))


def by_name(name: str) -> JobKind:
    """Raises NotFound."""
    try:
        return JobKind.objects.get(name=name)
    except JobKind.DoesNotExist:
        raise NotFound(f"Kind {name!r} is not registered.") from None


# Changing


def change(name: str, settings: Mapping[str, Any], *, actor: str, reason: str = "") -> JobKind:
    """Set what stands in the code's stead (None: the code again), registering the kind if need be.

    Raises Invalid naming each bad value.
    """
    unknown = [key for key in settings if key not in SETTINGS]
    if unknown:
        raise Invalid.at(f"/{unknown[0]}", f"A kind has {', '.join(SETTINGS)}, not {unknown[0]}.")
    with transaction.atomic():
        kind = _locked(name)
        before = {key: getattr(kind, key) for key in settings}
        for key, value in settings.items():
            setattr(kind, key, value)
        _clean(kind, settings)
        _save(kind)
        details = {"before": before, "after": dict(settings)}
        audit.record("kind.change", SUBJECT.format(name), actor=actor, reason=reason, details=details)
    _require_reached(_push_all([kind]))
    return kind


def sync(handlers: Mapping[str, Declared], *, actor: str) -> list[str]:
    """Register what handlers declare, and tell every shard again what it should know. Returns kinds changed.

    A kind that is not registered and about which its code says nothing is left alone.
    """
    changed = []
    with transaction.atomic():
        known = {kind.name: kind for kind in JobKind.objects.filter(name__in=handlers)}
        for name, declared in sorted(handlers.items()):
            members = json.loads(json.dumps(declared.declaration.members()))
            before = known.get(name)
            if not members and before is None:
                continue
            if before is None or (before.declared, before.declared_by) != (members, declared.by):
                known[name] = _declare(name, members, declared.by, actor)
                changed.append(name)
    _require_reached(_push_all(known.values()))
    return changed


def _declare(name: str, members: dict[str, Any], by: str, actor: str) -> JobKind:
    kind = _locked(name)
    details = {"before": kind.declared, "after": members, "by": by}
    kind.declared, kind.declared_by = members, by
    _save(kind)
    audit.record("kind.declare", SUBJECT.format(name), actor=actor, details=details)
    return kind


def _locked(name: str) -> JobKind:
    """The kind, registered if it was not; two who register it at once meet at its row."""
    if name == MESSAGE:
        raise Invalid.at("/name", "The kind of the messages face has no handler and no settings.")
    fresh = JobKind(name=name)
    try:
        fresh.clean_fields(exclude=CODE_S)
    except ValidationError as error:
        raise Invalid.at("/name", f"name: {error.messages[0]}") from error
    JobKind.objects.bulk_create([fresh], ignore_conflicts=True)
    return JobKind.objects.select_for_update().get(name=name)


def _save(kind: JobKind) -> None:
    kind.version = F("version") + 1
    kind.save()
    kind.refresh_from_db()
    forget()


def _clean(kind: JobKind, settings: Mapping[str, Any]) -> None:
    faults = []
    try:
        kind.clean_fields(exclude=CODE_S)
    except ValidationError as error:
        faults = [
            FieldError(f"/{key}", "invalid", f"{key}: {texts[0]}")
            for key, texts in error.message_dict.items()
        ]
    schema = settings.get("payload_schema")
    if schema is not None:
        try:
            Checker(schema)
        except BadSchema as error:
            faults.append(FieldError("/payload_schema", "invalid", f"payload_schema: {error}"))
    if settings.get("queue") is not None:
        try:
            policies.by_name(settings["queue"])
        except NotFound:
            faults.append(FieldError("/queue", "unknown_queue", "There is no such queue."))
    if faults:
        raise Invalid(errors=faults)


# Telling the shards


def push(kind: JobKind) -> list[int]:
    """Write a kind to every shard, never an older version over a newer. Returns shards not reached."""
    values = _row(kind)
    unreached = []
    for number, alias in database.aliases().items():
        try:
            with transaction.atomic(using=alias):
                rows = KindRow.objects.using(alias)
                if not rows.filter(kind=kind.name, version__lte=kind.version).update(**values):
                    rows.bulk_create([KindRow(kind=kind.name, **values)], ignore_conflicts=True)
        except (DatabaseError, JobsPlatformError):
            unreached.append(number)
    return unreached


def _row(kind: JobKind) -> dict[str, Any]:
    values = effective(kind) | {"version": kind.version}
    schema = values["payload_schema"]
    values["payload_schema"] = json.dumps(schema) if schema else None  # the empty schema allows everything
    values["external_effects"] = bool(values["external_effects"])
    return {name: values[name] for name in _PUSHED}


def _push_all(kinds: Iterable[JobKind]) -> set[int]:
    return {number for kind in kinds for number in push(kind)}


def _require_reached(unreached: Sequence[int] | set[int]) -> None:
    if unreached:
        shards = ", ".join(map(str, sorted(unreached)))
        raise Unavailable(f"The change is stored, but these shards were not reached: {shards}. Repeat it.")
