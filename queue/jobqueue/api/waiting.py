"""Claims that may wait: at once where there is work, else parked in the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from jobqueue import hub
from jobqueue.claiming import ClaimRequest, Lease, claim
from jobqueue.hub.claims import give_back, is_repeat
from jobqueue.types import Scope
from jobsplatform.http import Call, Later, Reply

FULL_RETRY_SECONDS: Final = "1"  # of a process that has as many parked polls as it takes
Show = Callable[[Sequence[Lease]], Reply]


def claim_or_wait(call: Call, request: ClaimRequest, scope: Scope, show: Show) -> Reply | Later:
    """Claim; where nothing is there and `wait_s` allows it, wait for it. An empty answer is a normal one.

    Who comes later than others that wait for the same work joins them: it would only meet what they found. But a repeat
    of a key with live leases gets those.
    """
    wait_s = call.body["wait_s"]
    if not request.queues:
        return show([])
    desk = hub.current()
    if not (wait_s and desk.has_waiters(request, scope)) or is_repeat(request, scope):
        held = claim(request, scope=scope)
        if held or not wait_s:
            return show(held)
    waiter = desk.park(request, scope, wait_s, check=call.ask_again)
    if waiter is None:
        reply = show([])
        return replace(reply, headers={**reply.headers, "Retry-After": FULL_RETRY_SECONDS})
    delivered: list[Lease] = []

    def answer() -> Reply:
        delivered.extend(waiter.leases())
        return show(delivered)

    def undo() -> None:
        desk.abandon(waiter)
        give_back(delivered, scope)

    return Later(waiter, answer, undo)
