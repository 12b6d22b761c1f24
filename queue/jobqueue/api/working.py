"""Calls of workers: claim leases, keep them, end them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from django.db import DatabaseError, InterfaceError

from jobqueue import leases, policies, reads
from jobqueue.api import bodies, names, wire
from jobqueue.api.calls import queue_in_body, require_queue, scope_of
from jobqueue.api.waiting import claim_or_wait
from jobqueue.api.wire import Members
from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.ids import parse_id, parse_token
from jobqueue.limits import BATCH_BODY_BYTES_MAX, JOB_BODY_BYTES_MAX, SETTLE_ITEMS_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.types import Scope
from jobsplatform.errors import Invalid, JobsPlatformError, UnknownOutcome
from jobsplatform.http import Call, Endpoint, Later, Reply, listing
from jobsplatform.instants import format_instant
from jobsplatform.problem import document
from jobsplatform.shapes import Checked


class Claim(Endpoint):
    """Lease jobs, most urgent first; waits up to `wait_s` for the first. An empty list is a normal answer."""

    body = bodies.CLAIM
    replies = {200: wire.LEASES}

    def check(self, call: Call) -> None:
        self.queues = named_queues(call.body)

    def act(self, call: Call) -> Reply | Later:
        scope = scope_of(call)
        for queue in self.queues or ():
            require_queue(call, queue)
        queues = policies.visible(scope) if self.queues is None else self.queues
        titles = {queue.id: queue.name for queue in queues}
        request = claim_request(call.body, queues)
        return claim_or_wait(call, request, scope, lambda held: claimed(held, titles))


class _LeaseCall(Endpoint):
    """A call of one lease's holder, recognised by job, generation and token."""

    verb: ClassVar[str]

    def act(self, call: Call) -> Reply:
        job_id = parse_id(call.path["job_id"])
        outcome = VERBS[self.verb].run([(job_id, call.body)], scope_of(call))[0]
        if isinstance(outcome, JobsPlatformError):
            raise outcome
        return Reply(200, outcome)


class Renew(_LeaseCall):
    """Extend a lease, and keep a checkpoint."""

    verb = "renew"
    body = bodies.RENEW
    replies = {200: wire.RENEWED}


class Complete(_LeaseCall):
    """End an attempt with its result. 200: the result is committed."""

    verb = "complete"
    body = bodies.COMPLETE
    body_bytes_max = JOB_BODY_BYTES_MAX
    replies = {200: wire.COMPLETED}


class Fail(_LeaseCall):
    """End an attempt that failed."""

    verb = "fail"
    body = bodies.FAIL
    replies = {200: wire.FAILED}


class Release(_LeaseCall):
    """Give a lease back; the attempt is not charged."""

    verb = "release"
    body = bodies.RELEASE
    replies = {200: wire.RELEASED}


class Settle(Endpoint):
    """Many calls of lease holders at once: all of complete, then fail, release, renew; each stands alone."""

    body = bodies.SETTLE
    body_bytes_max = BATCH_BODY_BYTES_MAX
    replies = {200: wire.ITEM_RESULTS}

    def check(self, call: Call) -> None:
        if sum(len(call.body[name]) for name in SETTLE_ORDER) > SETTLE_ITEMS_MAX:
            raise Invalid.at("", f"More than {SETTLE_ITEMS_MAX:,} items in all.", "length")

    def act(self, call: Call) -> Reply:
        scope = scope_of(call)
        results = [result for name in SETTLE_ORDER for result in _settle(name, call.body[name], scope)]
        return Reply(200, {"results": results})


# Claiming


def named_queues(body: Mapping[str, Any]) -> tuple[QueuePolicy, ...] | None:
    """The queues that a claim names; None: it names none."""
    if body["queue"] is not None:
        return (queue_in_body(body["queue"]),)
    if body["queues"] is None:
        return None
    found = [queue_in_body(name, f"/queues/{index}") for index, name in enumerate(body["queues"])]
    return tuple({queue.id: queue for queue in found}.values())


def claim_request(body: Mapping[str, Any], queues: tuple[QueuePolicy, ...]) -> ClaimRequest:
    kinds = body["capabilities"]
    return ClaimRequest(
        queues=queues,
        kinds=None if kinds is None else tuple(dict.fromkeys(kinds)),
        limit=body["limit"],
        lease_s=body["lease_s"],
        max_priority=body["max_priority"],
        worker=body["worker"],
        claim_key=body["claim_key"],
        prefetch=body["prefetch"],
    )


def claimed(held: Sequence[Lease], titles: Mapping[int, str]) -> Reply:
    """The answer to a claim; `titles` has the queues' names by id."""
    tenants = _slugs(held)
    texts = (wire.lease(one, tenants[one.tenant_id], titles[one.queue_id]) for one in held)
    at = held[0].claimed_at if held else reads.clock_for_show()
    return Reply(200, listing("leases", texts, {"server_time": format_instant(at)}))


def _slugs(held: Sequence[Lease]) -> dict[int, str]:
    """Tenant id → slug. Raises UnknownOutcome where one cannot be found out: the leases are made by now."""
    hidden = UnknownOutcome("Leases were made and could not be shown; repeat with the same claim_key.")
    try:
        found = names.slugs(lease.tenant_id for lease in held)
    except (DatabaseError, InterfaceError) as error:
        raise hidden from error
    if any(lease.tenant_id not in found for lease in held):
        raise hidden
    return found


# Ending and keeping leases

Calls = Sequence[tuple[int, Mapping[str, Any]]]  # job id and checked members of each
Outcomes = list[Members | JobsPlatformError]


class _Verb:
    """A verb of the leases with the edge's way in and out."""

    def __init__(
        self,
        run: Callable[..., Sequence[Any]],
        make: Callable[[int, int, bytes, Mapping[str, Any]], Any],
        show: Callable[[Any], Members],
    ) -> None:
        self._run, self._make, self._show = run, make, show

    def run(self, calls: Calls, scope: Scope) -> Outcomes:
        made = [self._make(job_id, b["generation"], parse_token(b["lease_token"]), b) for job_id, b in calls]
        outcomes = self._run(made, scope=scope) if made else []
        return [one if isinstance(one, JobsPlatformError) else self._show(one) for one in outcomes]


VERBS: Final[Mapping[str, _Verb]] = {
    "renew": _Verb(
        leases.renew,
        lambda job_id, generation, token, b: leases.Renew(
            job_id, generation, token, b["lease_s"], b["checkpoint"], b["started"]
        ),
        wire.renewed,
    ),
    "complete": _Verb(
        leases.complete,
        lambda job_id, generation, token, b: leases.Complete(job_id, generation, token, b["result"]),
        wire.completed,
    ),
    "fail": _Verb(
        leases.fail,
        lambda job_id, generation, token, b: leases.Fail(
            job_id, generation, token, b["error_class"], b["message"], b["retry_after_s"]
        ),
        wire.failed,
    ),
    "release": _Verb(
        leases.release,
        lambda job_id, generation, token, b: leases.Release(job_id, generation, token, b["delay_s"]),
        wire.released,
    ),
}
SETTLE_ORDER: Final = ("complete", "fail", "release", "renew")


def _settle(name: str, items: Sequence[Checked], scope: Scope) -> list[Members]:
    """Run the sound items of one list together and answer for all of them, in order."""
    refusals: dict[int, JobsPlatformError] = {}
    sound: dict[int, tuple[int, Mapping[str, Any]]] = {}
    for index, item in enumerate(items):
        try:
            if (refusal := item.refusal) is not None:
                raise refusal
            sound[index] = (parse_id(item.values["job_id"]), item.values)
        except JobsPlatformError as error:
            refusals[index] = error
    outcomes: dict[int, Members | JobsPlatformError] = dict(refusals)
    outcomes.update(zip(sound, VERBS[name].run(list(sound.values()), scope), strict=True))
    return [_result(items[index], outcomes[index]) for index in range(len(items))]


def _result(item: Checked, outcome: Members | JobsPlatformError) -> Members:
    job_id = item.values.get("job_id")
    if isinstance(outcome, JobsPlatformError):
        return {"status": outcome.status, "job_id": job_id, "problem": document(outcome)}
    return {"status": 200, "job_id": job_id, **outcome}
