"""Who waits in the hub, and for what. A waiter gets one outcome; whoever comes second finds it taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.types import Scope

Outcome = list[Lease] | Exception
Check = Callable[[], None]


class Group(NamedTuple):
    """Waiters that one claim can serve: one class of claims, one API token, one kind of lease."""

    queue_ids: tuple[int, ...]
    kinds: tuple[str, ...] | None
    max_priority: int | None
    scope: Scope
    lease_s: int | None
    prefetch: bool

    @classmethod
    def of(cls, request: ClaimRequest, scope: Scope) -> Group:
        return cls(
            tuple(sorted(queue.id for queue in request.queues)),
            None if request.kinds is None else tuple(sorted(request.kinds)),
            request.max_priority,
            scope,
            request.lease_s,
            request.prefetch,
        )

    @property
    def claim_class(self) -> tuple[object, ...]:
        """What decides whether there is anything to take, whoever asks."""
        return (self.queue_ids, self.kinds, self.max_priority, self.scope.tenant_id)

    def wants(self, queue_id: int, priority: int) -> bool:
        return queue_id in self.queue_ids and (self.max_priority is None or priority <= self.max_priority)


class Waiter:
    """One parked consumer. Until it is settled it may be abandoned: then it gets nothing, ever."""

    __slots__ = ("_callback", "_done", "_lock", "_outcome", "check", "ends_at", "group", "request")

    def __init__(
        self, request: ClaimRequest, scope: Scope, wait_s: float, check: Check | None = None
    ) -> None:
        self.request = request
        self.group = Group.of(request, scope)
        self.ends_at = time.monotonic() + wait_s
        self.check = check  # raises when the caller is no longer let in
        self._lock = threading.Lock()
        self._done: threading.Event | None = None
        self._callback: Callable[[], None] | None = None
        self._outcome: Outcome | None = None

    @property
    def is_settled(self) -> bool:
        return self._outcome is not None

    def settle(self, outcome: Outcome) -> bool:
        """Give it its outcome; False: it has one, or its client went away."""
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome = outcome
            callback, done = self._callback, self._done
        if done is not None:
            done.set()
        if callback is not None:
            callback()
        return True

    def abandon(self) -> list[Lease]:
        """Its client went away: the leases that it had got by then and that nobody will hear of."""
        with self._lock:
            outcome, self._outcome = self._outcome, []
            self._callback = None
        return outcome if isinstance(outcome, list) else []

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Call back once it has its outcome, in whatever thread that happens; at once if it has it."""
        with self._lock:
            if self._outcome is None:
                self._callback = callback
                return
        callback()

    def wait(self) -> None:
        """Sleep until it has its outcome; the hub sees to it that this is by `ends_at`."""
        with self._lock:
            if self._outcome is not None:
                return
            self._done = threading.Event()
        self._done.wait()

    def leases(self) -> list[Lease]:
        """What it got. Raises what it got instead."""
        outcome = self._outcome
        assert outcome is not None, "not settled yet"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def merged(members: list[Waiter]) -> ClaimRequest:
    """One request for all of them: the summed limit, under the first one's name. A key is one member's: it is written
    to that one's leases when they are dealt.
    """
    first = members[0].request
    if len(members) == 1:
        return first
    return replace(first, limit=sum(member.request.limit for member in members), claim_key=None)


def deal(leases: list[Lease], members: list[Waiter]) -> list[list[Lease]]:
    """Deal leases, most urgent first, to members, longest waiting first: one each, then a second, up to a limit."""
    hands: list[list[Lease]] = [[] for _ in members]
    rest = iter(leases)
    open_hands = list(range(len(members)))
    while open_hands:
        for index in open_hands:
            lease = next(rest, None)
            if lease is None:
                return hands
            hands[index].append(lease)
        open_hands = [i for i in open_hands if len(hands[i]) < members[i].request.limit]
    return hands
