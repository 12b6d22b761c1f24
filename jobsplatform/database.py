"""Where rows live: which models belong to the control database, which to every shard, and which alias a job has.

A job id is `id space << 48 | sequence`; an id space belongs to one shard for ever. The first space of a shard has the
shard's number; those that a shard gets at a restore or an unsafe failover begin at 1,024, and control knows whose
they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import Model

from jobsplatform.errors import Unavailable

SEQUENCE_BITS: Final = 48
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1

LATER_SPACES: Final = 1_024  # from here on a space's number says nothing of its shard
SPACES_SECONDS: Final = 1.0

_spaces: dict[int, int] = {}
_asked_at = float("-inf")
_read_spaces: Callable[[], Mapping[int, int]] = dict

CONTROL: Final = "control"
SHARD: Final = "shard"
BOTH: Final = "both"


def aliases() -> dict[int, str]:
    """Shard number → database alias."""
    return dict(settings.SHARD_ALIASES)


def space_of(job_id: int) -> int:
    """The id space that a job id names."""
    return job_id >> SEQUENCE_BITS


def alias_of(job_id: int) -> str | None:
    """The database alias that holds a job id, or None when no shard owns its id space.

    Raises Unavailable when only control knows, and control cannot be read.
    """
    space = space_of(job_id)
    return aliases().get(space if space < LATER_SPACES else _owner(space))


def number_of(alias: str) -> int:
    """The number of the shard with this database."""
    return next(number for number, known in aliases().items() if known == alias)


def read_spaces_by(read: Callable[[], Mapping[int, int]]) -> None:
    """How to ask control whose the later id spaces are: space → shard. Registered by the app that has the table."""
    global _read_spaces
    _read_spaces = read


def forget_spaces() -> None:
    """Drop what is remembered of later id spaces."""
    global _asked_at
    _spaces.clear()
    _asked_at = float("-inf")


def _owner(space: int) -> int:
    """The shard of a later id space; -1: none. Absent spaces are asked for at most once a second."""
    global _asked_at
    if space not in _spaces and time.monotonic() - _asked_at > SPACES_SECONDS:
        try:
            _spaces.update(_read_spaces())
        except DatabaseError as error:
            raise Unavailable("Whose id this is cannot be found out at the moment.") from error
        _asked_at = time.monotonic()
    return _spaces.get(space, -1)


def give_connections_back() -> None:
    """Return this thread's connections to their pools, but those in the midst of a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def placement(model: type[Model]) -> str:
    """`control`, `shard` or `both`: declared on the model as `placement`."""
    return getattr(model, "placement", CONTROL)


class Router:
    """Sends control models to `default`; shard models must name their database, or get the first shard."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        if placement(model) == SHARD:
            return aliases()[min(aliases())]
        return "default"

    db_for_write = db_for_read

    def allow_relation(self, obj1: Model, obj2: Model, **hints: Any) -> bool | None:
        return None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        target = hints.get("placement") or _declared(app_label, model_name)
        holds_control = _place(db) == _place("default")
        holds_shard = _place(db) in map(_place, aliases().values())
        if target == BOTH:
            return holds_control or holds_shard
        return holds_shard if target == SHARD else holds_control


def _place(alias: str) -> tuple[str, str, str]:
    """What database this is: a deployment that grew from one has its control beside its first shard, and one list of
    what was applied there.
    """
    entry = settings.DATABASES[alias]
    return str(entry.get("HOST", "")), str(entry.get("PORT", "")), str(entry["NAME"])


def _declared(app_label: str, model_name: str | None) -> str:
    """The placement that today's model declares: a migration's historical model does not carry it."""
    if model_name is None:
        return CONTROL
    try:
        return placement(apps.get_model(app_label, model_name))
    except LookupError:
        return CONTROL
