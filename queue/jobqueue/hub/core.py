"""The hub: where consumers wait for work without a database connection, and from where one claim serves many.

It wakes by hints (this process's own enqueues, and notifications of others) and looks by itself at least once a
second: a hint is only speed. Waiters of one group are served by one claim with their summed limit; of one queue
one claim is under way at a time, so that a job and a thousand waiters cost one claim. Groups that are looked at in the
same moment cost one statement a shard, so that ten thousand queues with waiting consumers cost twenty a second.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from django.db import connections
from prometheus_client import Histogram

from jobqueue.claiming import ClaimRequest, Lease
from jobqueue.hub import claims
from jobqueue.hub.waiters import Check, Group, Waiter
from jobqueue.limits import WORKER_CLAIM_LIMIT_MAX
from jobqueue.types import Scope
from jobqueue.wakeup import Mark
from jobsplatform import events
from jobsplatform.errors import JobsPlatformError

POLL_SECONDS: Final = 1.0  # between two looks of a group that nobody hints to; drawn from half of it on
ARRIVAL_SECONDS: Final = 0.02  # a group that was looked at so lately is not looked at for one more waiter
NOTE_SECONDS: Final = 10.0  # a real claim that often, so that `why` knows that somebody asks
NOTES_PER_SECOND: Final = 20.0  # and no more of all groups together: with many each has its turn more seldom
TURN_SECONDS: Final = 0.2  # how often the hub looks whether its process is told to stop
CLAIMERS: Final = 4  # threads that claim; each takes a connection for a claim's time
TICKS: Final = 20  # looks of one poll interval: what falls between two is looked at together
SPARE_SECONDS: Final = 0.05  # for which surplus leases are kept for the next consumer
SPARE_ENDS: Final = 100  # of waiters that were served, before they are cleared away

_lag = Histogram(
    "jobsplatform_wakeup_seconds",
    "From the word that there is work to the lease of a consumer who waits for it.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)


class _Row:
    """The waiters of one group, longest waiting first, and when to look for them."""

    __slots__ = (
        "claimed_at",
        "due_at",
        "hinted_at",
        "is_busy",
        "is_hinted",
        "is_urgent",
        "looked_at",
        "waiters",
    )

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}
        self.due_at = 0.0
        self.looked_at = self.claimed_at = float("-inf")
        self.is_busy = False
        self.is_hinted = False
        self.hinted_at: float | None = None  # since the last claim for it was begun
        self.is_urgent = False  # the hint was of urgent work


class _Look(NamedTuple):
    """What a claimer is to do: look for these waiters of a group, and claim (`must_claim`: in any case)."""

    group: Group
    row: _Row
    members: list[Waiter]
    must_claim: bool
    is_urgent: bool


class _Surplus(NamedTuple):
    """Leases whose consumer was gone when they came: the next one's until then, given back afterwards."""

    group: Group
    worker: str
    leases: list[Lease]
    until: float


class Hub:
    """One a process. `is_stopping` says that the process should end: then every waiter is answered empty."""

    def __init__(
        self,
        *,
        parked_max: int,
        is_stopping: Callable[[], bool] = lambda: False,
        poll_s: float = POLL_SECONDS,
        claim_for: Callable[[Sequence[Waiter], bool], list[list[Lease]]] = claims.claim_for,
        anything: Callable[[Sequence[Group]], set[Group]] = claims.anything,
        give_back: Callable[[Sequence[Lease], Scope], None] = claims.give_back,
    ) -> None:
        self._parked_max, self._is_stopping, self._poll_s = parked_max, is_stopping, poll_s
        self._claim_for, self._anything, self._give_back = claim_for, anything, give_back
        self._rows: dict[Group, _Row] = {}
        self._by_queue: dict[int, set[Group]] = {}
        self._dues: list[tuple[float, int, Group]] = []  # a heap; an entry counts if its row is due just then
        self._blocked: list[Group] = []  # due, and of a queue for which a claim is under way
        self._ends: list[tuple[float, int, Waiter]] = []
        self._numbers = itertools.count()
        self._busy: set[int] = set()  # queues of which a claim is under way
        self._parked = 0
        self._is_over = False
        self._changed = threading.Condition()
        self._looks: list[list[_Look] | _Surplus] = []
        self._spare: list[_Surplus] = []
        self._work = threading.Condition()
        self._threads: list[threading.Thread] = []

    @property
    def parked(self) -> int:
        """How many wait now."""
        return self._parked

    # For consumers

    def has_waiters(self, request: ClaimRequest, scope: Scope) -> bool:
        """Whether somebody waits for the same work already: it was not there a moment ago."""
        row = self._rows.get(Group.of(request, scope))
        return row is not None and bool(row.waiters)

    def park(
        self, request: ClaimRequest, scope: Scope, wait_s: float, check: Check | None = None
    ) -> Waiter | None:
        """Let a consumer wait up to `wait_s`; None: the process has as many as it takes, or ends."""
        waiter = Waiter(request, scope, wait_s, check)
        with self._changed:
            if self._is_over or self._is_stopping() or self._parked >= self._parked_max:
                return None
            self._start()
            if hand := self._take_spare(waiter):
                waiter.settle(hand)
                return waiter
            row = self._row_of(waiter.group)
            row.waiters[waiter] = None
            self._plan(waiter.group, row, min(row.due_at, row.looked_at + ARRIVAL_SECONDS))
            self._parked += 1
            self._note_end(waiter)
            self._changed.notify()
        return waiter

    def abandon(self, waiter: Waiter) -> None:
        """A waiter's client went away: no lease for it, and what it had got goes back at once."""
        undelivered = waiter.abandon()
        with self._changed:
            self._remove(waiter)
        self._give_back(undelivered, waiter.group.scope)

    # For those who know that there is work

    def hint(self, alias: str, marks: Iterable[Mark]) -> None:
        """Something became ready in these bands."""
        told = tuple(marks)
        with self._changed:
            meant = {group for mark in told for group in self._by_queue.get(mark.queue_id, ())}
            for group in meant:
                row = self._rows[group]
                wanted = [mark for mark in told if group.wants(*mark)] if row.waiters else []
                if wanted:
                    row.is_hinted = True
                    self._plan(group, row, 0.0)
                    row.hinted_at = row.hinted_at or time.monotonic()
                    row.is_urgent |= any(mark.is_urgent for mark in wanted)
        self._hand_on_due()

    def resync(self) -> None:
        """Hints may have been missed: look for everyone now."""
        with self._changed:
            for group, row in self._rows.items():
                self._plan(group, row, 0.0)
            self._changed.notify()

    def stop(self) -> None:
        """Answer everyone empty and end the threads."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        with self._work:
            self._work.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10)
        left = [*self._take_surplus(float("inf")), *(one for one in self._looks if isinstance(one, _Surplus))]
        self._looks = [one for one in self._looks if not isinstance(one, _Surplus)]
        for surplus in left:  # no claimer came to it any more
            self._give_back(surplus.leases, surplus.group.scope)

    # The hub's own thread

    def _start(self) -> None:
        if self._threads:
            return
        targets = [self._run, *[self._claimer] * CLAIMERS]
        self._threads = [threading.Thread(target=target, name="hub", daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                over = self._is_over or self._is_stopping()
                ended = self._take_all() if over else self._take_ended(time.monotonic())
                due = [] if over else self._take_due(time.monotonic())
                surplus = self._take_surplus(float("inf") if over else time.monotonic())
                if not ended and not due and not surplus and not self._is_over:
                    self._changed.wait(self._nap_s(time.monotonic()))
            for waiter in ended:
                waiter.settle([])
            self._hand_on([*surplus, *_parted(due)])
            if over and self._is_over and not ended:
                return  # it may have been ended since the look: then there are some to answer

    def _nap_s(self, now: float) -> float:
        """Until the next thing to do, and never so long that a stop would go unseen."""
        if self._is_stopping():
            return TURN_SECONDS
        while self._dues and not self._counts(self._dues[0]):
            heapq.heappop(self._dues)
        dues = [self._dues[0][0]] if self._dues else []
        ends = self._ends[0][0] if self._ends else now + self._poll_s
        spare = [surplus.until for surplus in self._spare]
        return max(0.0, min([now + TURN_SECONDS, ends, *dues, *spare]) - now)

    def _row_of(self, group: Group) -> _Row:
        row = self._rows.get(group)
        if row is None:
            row = self._rows[group] = _Row()
            if len(self._rows) > NOTES_PER_SECOND * NOTE_SECONDS:  # who comes has just claimed by itself
                row.claimed_at = time.monotonic()
            for queue_id in group.queue_ids:
                self._by_queue.setdefault(queue_id, set()).add(group)
        return row

    def _drop(self, group: Group) -> None:
        """Forget a group of which nobody waits."""
        if self._rows.pop(group, None) is not None:
            for queue_id in group.queue_ids:
                self._by_queue[queue_id].discard(group)
                if not self._by_queue[queue_id]:
                    del self._by_queue[queue_id]

    def _plan(self, group: Group, row: _Row, due_at: float) -> None:
        """Look for a group at this time, and not when it was planned before."""
        row.due_at = due_at
        heapq.heappush(self._dues, (due_at, next(self._numbers), group))

    def _counts(self, due: tuple[float, int, Group]) -> bool:
        row = self._rows.get(due[2])
        return row is not None and row.due_at == due[0]

    def _may_look(self, group: Group, row: _Row) -> bool:
        return not row.is_busy and self._busy.isdisjoint(group.queue_ids)

    def _take_ended(self, now: float) -> list[Waiter]:
        ended = []
        while self._ends and (self._ends[0][0] <= now or self._ends[0][2].is_settled):
            waiter = heapq.heappop(self._ends)[2]
            if self._remove(waiter):
                ended.append(waiter)
        return ended

    def _note_end(self, waiter: Waiter) -> None:
        """Those who were served leave the heap with this, not at their end: each holds its leases."""
        if len(self._ends) > 2 * self._parked + SPARE_ENDS:
            self._ends = [end for end in self._ends if not end[2].is_settled]
            heapq.heapify(self._ends)
        heapq.heappush(self._ends, (waiter.ends_at, next(self._numbers), waiter))

    def _take_all(self) -> list[Waiter]:
        self._ends.clear()
        waiters = [waiter for row in self._rows.values() for waiter in row.waiters]
        self._rows.clear()
        self._by_queue.clear()
        self._parked = 0
        return waiters

    def _remove(self, waiter: Waiter) -> bool:
        row = self._rows.get(waiter.group)
        if row is None or waiter not in row.waiters:
            return False
        del row.waiters[waiter]
        self._parked -= 1
        if not row.waiters and not row.is_busy:
            self._drop(waiter.group)
        return True

    def _take_due(self, now: float) -> list[_Look]:
        """Groups to look for now, each with the waiters that one claim can serve; their queues are taken."""
        due = []
        note_s = max(NOTE_SECONDS, len(self._rows) / NOTES_PER_SECOND)
        reached, self._blocked = set(self._blocked), []
        while self._dues and self._dues[0][0] <= now:
            entry = heapq.heappop(self._dues)
            if self._counts(entry):
                reached.add(entry[2])
        waiting = [(group, row) for group in reached if (row := self._rows.get(group)) is not None]
        for group, row in sorted(waiting, key=lambda item: item[1].due_at):
            if row.due_at > now or not row.waiters:
                continue
            if not self._may_look(group, row):
                self._blocked.append(group)
                continue
            row.is_busy = True
            self._busy.update(group.queue_ids)
            must_claim = row.is_hinted or now - row.claimed_at > note_s
            due.append(_Look(group, row, self._members(row), must_claim, row.is_urgent))
            row.is_hinted = row.is_urgent = False
            row.due_at, row.looked_at = float("inf"), now
        return due

    def _members(self, row: _Row) -> list[Waiter]:
        members: list[Waiter] = []
        room = WORKER_CLAIM_LIMIT_MAX
        for waiter in row.waiters:
            if members and waiter.request.limit > room:
                break
            members.append(waiter)
            room -= waiter.request.limit
        return members

    def _hand_on_due(self) -> None:
        """To the claimers from this very thread: the hub's own would have to wake first."""
        with self._changed:
            due = [] if self._is_over else self._take_due(time.monotonic())
        self._hand_on(_parted(due))

    def _hand_on(self, work: Sequence[list[_Look] | _Surplus]) -> None:
        if work:
            with self._work:
                self._looks += work
                self._work.notify(len(work))

    # Leases that came for somebody who had gone

    def _keep(self, group: Group, member: Waiter, hand: list[Lease]) -> None:
        """Keep them for the next consumer like this one, for a moment. A key's leases are that key's alone."""
        if member.request.claim_key is not None:
            self._give_back(hand, group.scope)
            return
        with self._changed:
            surplus = _Surplus(group, member.request.worker, hand, time.monotonic() + SPARE_SECONDS)
            self._spare.append(surplus)
            row = self._rows.get(group)
            served = [(one, self._take_spare(one)) for one in (row.waiters if row is not None else ())]
            self._changed.notify()
        for waiter, leases in served:
            if leases and not self._deliver(waiter, leases):
                self._give_back(leases, group.scope)

    def _take_spare(self, waiter: Waiter) -> list[Lease]:
        """What is kept and fits; the rest stays."""
        if waiter.request.claim_key is not None:
            return []
        room, hand, left = waiter.request.limit, list[Lease](), list[_Surplus]()
        for surplus in self._spare:
            if (surplus.group, surplus.worker) == (waiter.group, waiter.request.worker):
                hand += surplus.leases[: room - len(hand)]
                surplus = surplus._replace(leases=[one for one in surplus.leases if one not in hand])
            if surplus.leases:
                left.append(surplus)
        self._spare = left
        return hand

    def _take_surplus(self, now: float) -> list[_Surplus]:
        """What nobody came for in time."""
        over = [surplus for surplus in self._spare if surplus.until <= now]
        self._spare = [surplus for surplus in self._spare if surplus.until > now]
        return over

    # The claimers

    def _claimer(self) -> None:
        while True:
            with self._work:
                while not self._looks:
                    if self._is_over:
                        return
                    self._work.wait()
                work = self._looks.pop(0)
            try:
                if isinstance(work, _Surplus):
                    self._give_back(work.leases, work.group.scope)
                else:
                    self._look(work)
            finally:
                connections.close_all()  # to their pools: nobody waits on a connection

    def _look(self, looks: list[_Look]) -> None:
        """Serve one group, or find out for which of many there is anything."""
        if len(looks) == 1:
            again = False
            try:
                again = self._serve(looks[0])
            finally:
                self._finish(looks[0].group, looks[0].row, again)
            self._hand_on_due()  # what came meanwhile
            return
        allowed = [look for look in looks if self._is_let_in(look)]
        try:
            found = self._anything([look.group for look in allowed])
        except Exception as error:
            for look in allowed:
                self._refuse(look.members, error)
            found = set()
        for look in looks:
            if look.group not in found:
                self._finish(look.group, look.row, False)
        self._hand_on([[look._replace(must_claim=True)] for look in allowed if look.group in found])

    def _is_let_in(self, look: _Look) -> bool:
        try:
            if (check := look.members[-1].check) is not None:
                check()
        except Exception as error:
            self._refuse(look.members, error)
            return False
        return True

    def _serve(self, look: _Look) -> bool:
        """Look, claim, hand out. True: there may be more."""
        group, row, members, must_claim, is_urgent = look
        try:
            if (check := members[-1].check) is not None:
                check()
            if not must_claim and not self._anything([group]):
                return False
            row.claimed_at = time.monotonic()
            hinted_at, row.hinted_at = row.hinted_at, None
            hands = self._claim_for(members, is_urgent)
        except Exception as error:
            self._refuse(members, error)
            return False
        if hinted_at is not None and any(hands):
            _lag.observe(time.monotonic() - hinted_at)
        for member, hand in zip(members, hands, strict=True):
            if hand and not self._deliver(member, hand):
                self._keep(group, member, hand)
        asked = sum(member.request.limit for member in members)
        got = sum(map(len, hands))
        return got == asked or claims.is_cut_short(members[0].request, hands)

    def _deliver(self, waiter: Waiter, hand: list[Lease]) -> bool:
        with self._changed:
            self._remove(waiter)
        return waiter.settle(hand)

    def _refuse(self, members: list[Waiter], error: Exception) -> None:
        if not isinstance(error, JobsPlatformError):
            events.emit("hub_failed", error=repr(error)[:500])
        for member in members:
            with self._changed:
                self._remove(member)
            member.settle(error)

    def _finish(self, group: Group, row: _Row, again: bool) -> None:
        with self._changed:
            row.is_busy = False
            self._busy.difference_update(group.queue_ids)
            if self._rows.get(group) is not row:
                pass  # all were answered, and others may have come since
            elif not row.waiters:
                self._drop(group)
            elif again or row.is_hinted:
                row.is_hinted = True
                self._plan(group, row, 0.0)
            else:
                tick = self._poll_s / TICKS
                next_at = time.monotonic() + self._poll_s * random.uniform(0.5, 1.0)
                self._plan(group, row, min(row.due_at, math.ceil(next_at / tick) * tick))
            self._changed.notify()


def _parted(due: list[_Look]) -> list[list[_Look]]:
    """A claimer's work each: a claim for itself, looks together."""
    peeks = [look for look in due if not look.must_claim]
    return [*([look] for look in due if look.must_claim), *([peeks] if peeks else [])]
