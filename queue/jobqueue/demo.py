"""The demo: three tenants whose work on real files flows while `manage.py up` runs.

It stays small for as long as it runs: no more than `WAITING_MAX` jobs of a tenant wait, and kinds that end as
dead letters come once an hour by their request key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from jobqueue import policies
from jobqueue.enqueue import NewJob, enqueue
from jobsplatform import database, sql
from jobsplatform.errors import NotFound
from tenants import members, registry

ACTOR: Final = "demo"
LIMITED: Final = "initech"
TENANTS: Final = ("acme", "globex", LIMITED)
LIMITS: Final = {"max_running": 2, "max_depth": 200}
QUEUES: Final = ("default", "docs")
WAITING_MAX: Final = 60  # of one tenant: 180 in all
SLEEP_SECONDS: Final = 10  # with two running and one job a 4.5 s, some always run and at times some wait
FLOW_SECONDS: Final = 1.5


def receiver_file() -> Path:
    """Where the demo's receiver writes its address."""
    return Path(settings.DATA) / "demo_receiver"


def folders() -> list[Path]:
    """What `text.index` may read for any tenant: the setting JOBS_DEMO_FOLDERS, else the repository's documents."""
    return [(Path(settings.BASE_DIR) / name).resolve() for name in settings.JOBS_DEMO_FOLDERS]


# Preparing


def prepare(member: str | None = None) -> str:
    """Make the demo's tenants and queues where they are missing, and their first jobs. Says what there is.

    `member`: an account that new tenants are opened to, so that their own pages can be looked at.
    """
    for name in QUEUES:
        try:
            policies.by_name(name)
        except NotFound:
            policies.create_queue(name, actor=ACTOR)
    for slug in TENANTS:
        try:
            registry.get(slug)
        except NotFound:
            registry.create_tenant(slug, actor=ACTOR)
            if member is not None:  # once: an operator's later change stands
                members.set_member(slug, member, members.Role.ADMIN, actor=ACTOR, reason="to show its pages")
            if slug == LIMITED:
                registry.set_quota(slug, LIMITS, actor=ACTOR, reason="a tenant with limits")
    enqueue([_job(wanted) for wanted in _firsts()])
    told = f"tenants {', '.join(TENANTS)} ({LIMITED} has limits); queues {', '.join(QUEUES)}"
    return told if member is None else f"{told}; a tenant's own pages: /t/{TENANTS[0]}/"


def documents() -> list[str]:
    """The repository's own documents, as paths from its root."""
    root, allowed = Path(settings.BASE_DIR).resolve(), folders()
    found = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])
    return [
        str(path.relative_to(root)) for path in found if any(path.is_relative_to(place) for place in allowed)
    ]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job that the demo wants."""

    tenant: str
    queue: str
    kind: str
    payload: Mapping[str, Any]
    band: int = 2
    delay_s: int | None = None
    request_key: str | None = None


def _firsts() -> Iterator[Wanted]:
    """One job of each kind and each document; the keys make a repeated start harmless."""
    for path in documents():
        yield Wanted("acme", "docs", "text.index", {"path": path}, request_key=f"demo:first:{path}")
    yield Wanted("globex", "default", "http.call", {"order": 0}, 1, request_key="demo:first:call")
    yield Wanted("globex", "default", "demo.flaky", {}, request_key="demo:first:flaky")
    yield from _doomed("first")


def _doomed(moment: str) -> Iterator[Wanted]:
    """Jobs that end as dead letters, once a `moment`."""
    wrong = {"valid": False, "moment": moment}
    yield Wanted("globex", "default", "demo.invalid", wrong, request_key=f"demo:invalid:{moment}")
    yield Wanted(LIMITED, "default", "demo.crash", {"moment": moment}, 4, request_key=f"demo:crash:{moment}")


def _job(wanted: Wanted) -> NewJob:
    return NewJob(
        tenant_id=registry.get(wanted.tenant).pk,
        queue=policies.by_name(wanted.queue),
        kind=wanted.kind,
        priority=wanted.band,
        payload=json.dumps(wanted.payload),
        delay_s=wanted.delay_s,
        request_key=wanted.request_key,
    )


# The flow


class Flow:
    """A steady trickle of work, one step at a time."""

    def __init__(self) -> None:
        self.step = 0
        self._documents = cycle(documents() or [""])

    def run(self) -> int:
        """Enqueue what this step brings and return how many jobs that was."""
        wanted = [item for item in self._next() if item.request_key or _waiting(item.tenant) < WAITING_MAX]
        self.step += 1
        if wanted:
            enqueue([_job(item) for item in wanted])
        return len(wanted)

    def _next(self) -> Iterator[Wanted]:
        step, document = self.step, next(self._documents)
        if document:
            yield Wanted("acme", "docs", "text.index", {"path": document}, step % 5)
        if step % 2 == 0:
            yield Wanted("globex", "default", "http.call", {"order": step}, 1)
        if step % 3 == 0:
            yield Wanted(LIMITED, "default", "demo.sleep", {"seconds": SLEEP_SECONDS}, 3)
        if step % 10 == 5:
            yield Wanted("globex", "docs", "text.index", {"text": f"Step {step} of the demo."}, 2, delay_s=60)
        if step % 20 == 7:
            yield Wanted("globex", "default", "demo.flaky", {"step": step})
        if step % 40 == 39:
            yield from _doomed(datetime.now(UTC).strftime("%Y-%m-%dT%H"))


def _waiting(slug: str) -> int:
    """How many jobs of a tenant wait, counted no further than the bound."""
    bound = {"tenant_id": registry.get(slug).pk, "queue_id": None, "priority": None, "bound": WAITING_MAX}
    counts = (sql.rows("jobqueue/waiting_count", bound, alias=alias) for alias in database.aliases().values())
    return sum(int(rows[0][0]) for rows in counts)


def forget_receiver() -> None:
    """Take the receiver's address away."""
    with suppress(OSError):
        receiver_file().unlink()
