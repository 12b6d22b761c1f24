"""Who acts in the tests, and how they get what they act on: always through the verbs.

*acme* and *globex* are tenants, *mallory* belongs to globex and tries what is acme's, *ops* runs the platform.
Instants are chosen: `at(12)` is twelve seconds after the tests' beginning of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.db import connections

from dlq import campaigns, corrections, redrive
from dlq.campaigns import CampaignFilter, CampaignView, NewCampaign
from dlq.models import Campaign
from jobqueue import claiming, leases, policies
from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.enqueue import Accepted, NewJob
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.leases import Cancelled, Completed, Failed, Released, Renewed
from jobqueue.models import Queue
from jobqueue.policies import QueuePolicy
from jobqueue.types import FLEET, Scope
from jobsplatform.errors import JobsPlatformError
from tenants import registry
from tenants.models import Tenant

T = TypeVar("T")

SHARD = settings.SHARD_ALIASES[0]
OPS = "user:ops"
MALLORY = "user:mallory"

# Later than the database's clock, so that no bound that upkeep takes from the clock hides what tests enqueue.
BEGINNING = datetime(2035, 5, 4, 12, tzinfo=UTC)

PLACES = ("queue_scheduledjob", "queue_readyjob", "queue_lease", "queue_result", "dlq_deadletter")
TRACES = (*PLACES, "queue_attempt", "dlq_correction", "dlq_redrive")


def at(seconds: float) -> datetime:
    return BEGINNING + timedelta(seconds=seconds)


# Tenants and queues


def tenant(slug: str) -> Tenant:
    return Tenant.objects.filter(slug=slug).first() or registry.create_tenant(slug, actor=OPS)


def acme() -> Tenant:
    return tenant("acme")


def globex() -> Tenant:
    return tenant("globex")


def scope_of(owner: Tenant, token_id: int | None = None) -> Scope:
    return Scope(tenant_id=owner.pk, token_id=token_id)


def mallory() -> Scope:
    """What mallory may see: globex's work alone."""
    return scope_of(globex())


def queue(name: str = "default", *, preset: str = "five", **changes: Any) -> QueuePolicy:
    """The queue of that name with these settings, made or changed as needed, and known to the shard."""
    if not Queue.objects.filter(name=name).exists():
        return policies.create_queue(name, preset=preset, settings=changes, actor=OPS)
    return policies.change_queue(name, changes, actor=OPS) if changes else policies.by_name(name)


# A job's life


def new_job(**changes: Any) -> NewJob:
    """A request by acme for default work; `changes` are NewJob's fields."""
    values: dict[str, Any] = {"kind": "noop", "payload": "null", "priority": 2, **changes}
    values.setdefault("queue", None)
    if values["queue"] is None:
        values["queue"] = queue()
    if "tenant_id" not in values:
        values["tenant_id"] = acme().pk
    return NewJob(**values)


def enqueue(*, now: datetime | None = BEGINNING, **changes: Any) -> int:
    """Accept one job and return its id; a refusal is raised."""
    return accepted(enqueue_jobs([new_job(**changes)], now=now)[0]).job_id


def enqueue_many(count: int, *, now: datetime | None = BEGINNING, **changes: Any) -> list[int]:
    one = new_job(**changes)
    return [accepted(outcome).job_id for outcome in enqueue_jobs([one] * count, now=now)]


def accepted(outcome: Accepted | JobsPlatformError) -> Accepted:
    if isinstance(outcome, JobsPlatformError):
        raise outcome
    return outcome


def claim(
    *queues: QueuePolicy | str, now: datetime | None = BEGINNING, scope: Scope = FLEET, **asked: Any
) -> list[Lease]:
    """Leases of `queues` (default: the default queue)."""
    chosen = tuple(policies.by_name(q) if isinstance(q, str) else q for q in queues or ("default",))
    return claiming.claim(ClaimRequest(queues=chosen, **asked), scope=scope, now=now)


def claim_one(*queues: QueuePolicy | str, now: datetime | None = BEGINNING, **asked: Any) -> Lease:
    found = claim(*queues, now=now, **asked)
    assert len(found) == 1, f"{len(found)} leases, not one"
    return found[0]


def leased(*, now: datetime | None = BEGINNING, lease_s: int | None = None, **changes: Any) -> Lease:
    """A job enqueued and claimed at one instant; nothing else may be waiting."""
    job_id = enqueue(now=now, **changes)
    lease = claim_one(changes.get("queue") or "default", now=now, lease_s=lease_s)
    assert lease.job_id == job_id
    return lease


def key_of(lease: Lease) -> dict[str, Any]:
    return {"job_id": lease.job_id, "generation": lease.generation, "token": lease.token}


def renew(lease: Lease, *, now: datetime | None = None, scope: Scope = FLEET, **more: Any) -> Renewed:
    return _only(leases.renew([leases.Renew(**key_of(lease), **more)], scope=scope, now=now))


def complete(
    lease: Lease, *, now: datetime | None = None, scope: Scope = FLEET, result: str = '"done"', **fence: Any
) -> Completed:
    return _only(
        leases.complete([leases.Complete(**key_of(lease) | fence, result=result)], scope=scope, now=now)
    )


def fail(
    lease: Lease,
    *,
    now: datetime | None = None,
    scope: Scope = FLEET,
    error_class: str = "transient",
    **more: Any,
) -> Failed:
    fields = key_of(lease) | {"error_class": error_class} | more
    return _only(leases.fail([leases.Fail(**fields)], scope=scope, now=now))


def release(lease: Lease, *, now: datetime | None = None, scope: Scope = FLEET, **more: Any) -> Released:
    return _only(leases.release([leases.Release(**key_of(lease) | more)], scope=scope, now=now))


def cancel(job_id: int, *, now: datetime | None = None, scope: Scope = FLEET) -> Cancelled:
    return leases.cancel(job_id, actor=OPS, scope=scope, now=now)


def buried(*, error_class: str = "transient", now: datetime = BEGINNING, **changes: Any) -> int:
    """A dead letter: `transient` (exhausted at the first try), `permanent` (invalid) or `uncertain`."""
    lease = leased(now=now, max_attempts=1, **changes)
    dead = fail(lease, now=now + timedelta(seconds=1), error_class=error_class, message="boom 17")
    assert dead.state == "dead"
    return lease.job_id


def graveyard(
    count: int, *, now: datetime = BEGINNING, error_class: str = "transient", **changes: Any
) -> list[int]:
    """Ids of that many dead letters, which died one second after `now`; nothing else may be waiting."""
    q = changes.get("queue") or "default"
    ids: list[int] = []
    while len(ids) < count:
        some = min(500, count - len(ids))
        enqueue_many(some, now=now, max_attempts=1, **changes)
        held: list[Lease] = []
        while len(held) < some:
            held += claim(q, now=now, limit=100)
        kill(held, now=now + timedelta(seconds=1), error_class=error_class)
        ids += [lease.job_id for lease in held]
    return sorted(ids)


def kill(
    held: Sequence[Lease], *, now: datetime, error_class: str = "transient", message: str = "boom"
) -> None:
    """End the last attempts of these leases."""
    calls = [leases.Fail(**key_of(lease), error_class=error_class, message=message) for lease in held]
    assert all(isinstance(answer, Failed) for answer in leases.fail(calls, now=now))


def campaign(
    *, now: datetime | None = None, scope: Scope = FLEET, chosen: CampaignFilter | None = None, **plan: Any
) -> Campaign:
    """A campaign over the exhausted (or what `chosen` says), without a canary unless the plan has one."""
    values = {"note": "the receiver is back", "actor": OPS, "rate_per_s": 200, "canary": 0, **plan}
    wanted = chosen or CampaignFilter(reason="exhausted")
    return campaigns.create(NewCampaign(chosen=wanted, **values), scope=scope, now=now)


def progress_of(made: Campaign) -> CampaignView:
    return campaigns.get(made.pk, scope=FLEET)


def correct(
    job_id: int, *, note: str = "typo", scope: Scope = FLEET, now: datetime | None = None, **more: Any
) -> corrections.Corrected:
    fields = {"payload": '{"fixed": true}', **more}
    new = corrections.NewCorrection(note=note, actor=OPS, **fields)
    return corrections.correct(job_id, new, scope=scope, now=now)


def redriven(
    job_id: int, *, note: str = "again", now: datetime | None = None, scope: Scope = FLEET, **more: Any
) -> redrive.Redriven:
    return redrive.redrive(job_id, redrive.NewRedrive(note=note, actor=OPS, **more), scope=scope, now=now)


def _only(answers: Sequence[T | JobsPlatformError]) -> T:
    (answer,) = answers
    if isinstance(answer, JobsPlatformError):
        raise answer
    return answer


# What the tables say


def read(statement: str, params: Sequence[Any] = (), *, alias: str = SHARD) -> list[tuple[Any, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


def row(table: str, job_id: int) -> dict[str, Any]:
    """The job's row in one table. Fails when it has none."""
    (found,) = rows(table, job_id)
    return found


def rows(table: str, job_id: int) -> list[dict[str, Any]]:
    column = "id" if table == "queue_job" else "job_id"
    with connections[SHARD].cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} t WHERE {column} = %s ORDER BY t::text", [job_id])
        names = [column.name for column in cursor.description]
        return [dict(zip(names, map(_plain, values), strict=True)) for values in cursor.fetchall()]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def places(job_id: int) -> list[str]:
    """The places where the job stands, each once a row; one of them is what the platform promises."""
    union = " UNION ALL ".join(f"SELECT '{table}' FROM {table} WHERE job_id = %s" for table in PLACES)
    return [name for (name,) in read(union, [job_id] * len(PLACES))]


def place(job_id: int) -> str:
    """`scheduledjob`, `readyjob`, `lease`, `result` or `deadletter`: the only place of the job."""
    (found,) = places(job_id)
    return found.split("_")[1]


def everything_about(job_id: int) -> dict[str, list[dict[str, Any]]]:
    """All rows that tell of a job: equal before and after a call that changes nothing."""
    return {table: rows(table, job_id) for table in ("queue_job", *TRACES)}


def forget_job(job_id: int) -> None:
    """Remove every row of a job, for tests that go on with another."""
    with connections[SHARD].cursor() as cursor:
        for table in (*TRACES, "queue_requestkey"):
            cursor.execute(f"DELETE FROM {table} WHERE job_id = %s", [job_id])
        cursor.execute("DELETE FROM queue_job WHERE id = %s", [job_id])
        cursor.execute("DELETE FROM queue_poisonmark WHERE job_id = %s", [job_id])
        cursor.execute("UPDATE queue_lane SET gated_until = NULL WHERE gated_until IS NOT NULL")


@contextmanager
def changes_nothing(*job_ids: int) -> Iterator[None]:
    before = [everything_about(job_id) for job_id in job_ids]
    ledger = read("SELECT count(*), max(id) FROM queue_lanedelta")
    yield
    assert [everything_about(job_id) for job_id in job_ids] == before
    assert read("SELECT count(*), max(id) FROM queue_lanedelta") == ledger


def audited(action: str, *, alias: str = SHARD) -> int:
    return int(read("SELECT count(*) FROM tenants_auditentry WHERE action = %s", [action], alias=alias)[0][0])


# Racing


def together(*actions: Callable[[], T]) -> list[T | BaseException]:
    """Run the actions in threads that start at one barrier; their answers, or what they raised, in order."""
    barrier = Barrier(len(actions))
    answers: list[Any] = [None] * len(actions)

    def run(index: int, action: Callable[[], T]) -> None:
        try:
            barrier.wait(30)
            answers[index] = action()
        except BaseException as error:
            answers[index] = error
        finally:
            connections.close_all()

    threads = [Thread(target=run, args=pair, daemon=True) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a racer hangs"
    return answers


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Sleep until the condition holds. Fails after a generous while."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.01)


def deadlocks() -> int:
    """How many deadlocks the shard has seen."""
    time.sleep(1.1)  # a session writes its statistics once a second
    found = read("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(found[0][0])


@contextmanager
def second_session(*, alias: str = SHARD, autocommit: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """A session of one's own; what it left open is rolled back at the end."""
    entry = connections[alias].get_connection_params()
    wanted = {key: entry[key] for key in ("host", "port", "dbname", "user", "password") if entry.get(key)}
    connection = psycopg.connect(**wanted, autocommit=autocommit)
    try:
        yield connection
    finally:
        if not connection.closed:
            connection.rollback()  # a session that is only closed lets go of its locks a little later
        connection.close()
