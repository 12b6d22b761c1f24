"""The order in which a claim over several queues asks them."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from jobqueue.claiming.types import ClaimRequest
from jobqueue.policies import QueuePolicy
from jobqueue.types import Scope, short_hash
from jobsplatform import sql


class QueueTurn(NamedTuple):
    """One queue's turn in a claim over several; a strict turn is for its strict bands alone."""

    queue: QueuePolicy
    max_priority: int | None = None

    @property
    def is_strict(self) -> bool:
        return self.max_priority is not None


def turns_of(alias: str, request: ClaimRequest, scope: Scope) -> list[QueueTurn]:
    """The order in which queues are asked, each with a bound on the band: strict heads by age, then all in turn."""
    by_id = {queue.id: queue for queue in request.queues}
    params = {
        "queue_ids": list(by_id),
        "max_priority": request.max_priority,
        "kinds": None if request.kinds is None else list(request.kinds),
        "tenant_id": scope.tenant_id,
    }
    heads = sql.rows("jobqueue/claim_queues", params, alias=alias)
    strict = sorted(
        (position, queue_id)
        for queue_id, priority, position in heads
        if priority < len(bands := by_id[queue_id].bands) and bands[priority].strict
    )
    last_strict = {
        q.id: max((i for i, band in enumerate(q.bands) if band.strict), default=-1) for q in request.queues
    }
    turns = [QueueTurn(by_id[queue_id], last_strict[queue_id]) for _, queue_id in strict]
    # The key's own order, so that racing repeats meet at the same locks.
    mark = secrets.token_hex(8) if request.claim_key is None else request.claim_key
    rotated = sorted((queue_id for queue_id, *_ in heads), key=lambda queue_id: short_hash(mark, queue_id))
    return turns + [QueueTurn(by_id[queue_id]) for queue_id in rotated]
