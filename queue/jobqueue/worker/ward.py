"""Isolation of suspects: jobs whose worker died while it held them.

Any worker knows them by the crashes that their lease tells of. Of jobs that ran side by side when their process died
nobody can know which killed it, so each is charged; to charge the innocent once at most, each runs alone from then
on: in a process that runs one suspect at a time, bounded in memory and time. A job that kills again is then alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jobqueue.worker.board import PLACES
from jobqueue.worker.channel import Held, Word, pack_instant, unpack_isolated, unpack_notes
from jobqueue.worker.leasebook import HeldLease, LeaseBook
from jobqueue.worker.partings import Partings
from jobqueue.worker.process import ExecutorProcess

ROOM = 8  # suspects that wait for each process; more go back to the queue for a while
WAIT_S = 30.0  # for a process; then the lease goes back too
JOBS_PER_PROCESS = (
    50  # one after another; then a fresh one, so that nobody inherits for long what others leaked
)
IDLE_S = 1.0  # a process without a suspect ends
# How long what goes back stays away: until about its turn, and not for long, as another worker may have room.
BACK_S_MIN, BACK_S_MAX = 2, 30
LEARN = 0.2  # weight of the newest run in the mean


class _Patient(NamedTuple):
    """A suspect's lease on its way to a process."""

    taken_at: float
    held: Held
    body: bytes  # the frame that hands the lease on
    came_at: float


@dataclass(slots=True)
class _Room:
    """What is known of a process that runs suspects."""

    process: ExecutorProcess
    taken: int = 0  # suspects so far
    busy_since: float | None = None  # it has one; None: it waits for the next
    running_since: float | None = None  # its handler was first seen running
    idle_since: float = 0.0
    is_dismissed: bool = False


class Ward:
    """Owned by the keeper's thread. `book` has the leases that wait; those that run are in their process's."""

    def __init__(
        self,
        partings: Partings,
        start: Callable[[], ExecutorProcess],
        *,
        limit: int = 1,
        run_s: float | None = None,
    ) -> None:
        self._partings = partings
        self._start = start
        self._limit = limit  # processes at a time
        self._run_s = run_s  # longest run of a suspect
        self._waiting: dict[int, _Patient] = {}  # by place in the book
        self._away: list[
            float
        ] = []  # when those come back that were sent away; others may take them meanwhile
        self._rooms: list[_Room] = []
        self._next_place = 0
        self._mean_s = 1.0  # that a suspect takes
        self.book = LeaseBook(memoryview(bytearray(PLACES)))
        self.is_closed = False

    def __bool__(self) -> bool:
        return bool(self._waiting or self._rooms)

    @property
    def processes(self) -> list[ExecutorProcess]:
        return [room.process for room in self._rooms]

    @property
    def next_at(self) -> float:
        """When `treat` has something next without any word from outside."""
        return min(
            (
                room.idle_since + IDLE_S
                for room in self._rooms
                if room.busy_since is None and not room.is_dismissed
            ),
            default=math.inf,
        )

    def bury(self, process: ExecutorProcess) -> None:
        """Forget a process that has ended; the keeper judges what it leaves."""
        self._rooms = [room for room in self._rooms if room.process is not process]

    def admit(self, body: bytes, now: float) -> None:
        """Take over the lease in an executor's ISOLATE frame; when too many wait, one of them goes back."""
        taken_at, held = unpack_isolated(body)
        held = held._replace(place=self._next_place)
        self._next_place = (self._next_place + 1) % PLACES
        self._waiting[held.place] = _Patient(taken_at, held, body, now)
        self.book.add(taken_at, [held], now)
        if len(self._waiting) > ROOM * self._limit:
            self._send_away([self._newest()], now)

    def treat(self, now: float) -> None:
        """Hand those that wait to processes that are free; end what has run for too long, or has nothing to do."""
        for room in self._rooms:
            self._look_at(room, now)
        late = [place for place, one in self._waiting.items() if self.is_closed or now - one.came_at > WAIT_S]
        self._send_away(late, now)
        while self._waiting and (free := self._free_room()) is not None:
            self._hand_over(free, now)
        for room in self._rooms:
            is_worn = room.taken >= JOBS_PER_PROCESS
            if room.busy_since is None and (is_worn or self.is_closed or now - room.idle_since > IDLE_S):
                self._dismiss(room)

    def _look_at(self, room: _Room, now: float) -> None:
        process = room.process
        if room.busy_since is None:
            return
        is_running = process.board.running()  # also after its lease was lost: no other may join it
        if not (len(process.book) or is_running):
            self._mean_s += LEARN * (now - room.busy_since - self._mean_s)
            room.busy_since = room.running_since = None
            room.idle_since = now
        elif is_running:
            room.running_since = room.running_since or now
            if self._run_s is not None and now - room.running_since > self._run_s:
                process.kill()  # its lease lapses, and is charged

    def _free_room(self) -> _Room | None:
        """A process for the next suspect: one that waits, or a new one while there are not too many."""
        for room in self._rooms:
            if room.busy_since is None and not room.is_dismissed and room.taken < JOBS_PER_PROCESS:
                return room
        if len(self._rooms) >= self._limit:
            return None
        self._rooms.append(_Room(self._start()))
        return self._rooms[-1]

    def _hand_over(self, room: _Room, now: float) -> None:
        place = next(iter(self._waiting))
        patient = self._waiting.pop(place)
        lease = self.book.take(place)
        if lease is None:
            return
        # Its engine gives out places in their order, and holds one lease at a time: so this one's is known before
        # it says so, and the lease is in some book at every instant.
        room.process.book.adopt(lease, room.taken, now)
        room.taken += 1
        room.busy_since = now
        room.process.tell(Word.RUN, patient.body)

    def _dismiss(self, room: _Room) -> None:
        if not room.is_dismissed:
            room.is_dismissed = True
            room.process.tell(Word.DRAIN, pack_instant(time.monotonic()))

    def tell(self, word: Word, body: bytes) -> None:
        """What renewals found of leases that wait here."""
        places = [note.place for note in unpack_notes(body)]
        if word is Word.LOST:
            for place in places:
                self._waiting.pop(place, None)
        elif word is not Word.ENDING:
            self._partings.release(self._take_out(places))

    def _take_out(self, places: Iterable[int]) -> list[HeldLease]:
        held = [lease for place in places if (lease := self.book.take(place)) is not None]
        for lease in held:
            self._waiting.pop(lease.place, None)
        return held

    def _newest(self) -> int:
        """The place of the one that was claimed least often, of such the last to come: who was sent away before stays,
        or it might never have its turn.
        """
        return min(reversed(self._waiting), key=lambda place: self._waiting[place].held.generation)

    def _send_away(self, places: list[int], now: float) -> None:
        """Back to the queue; when the ward stays open, for about as long as those before them take."""
        held = self._take_out(places)
        if self.is_closed:
            self._partings.release(held)
            return
        self._away = [back_at for back_at in self._away if back_at > now]
        for lease in held:
            ahead = len(self._waiting) + len(self._away)
            delay_s = math.ceil(ahead * self._mean_s / self._limit)
            delay_s = min(max(delay_s, BACK_S_MIN), BACK_S_MAX)
            self._partings.postpone([lease], delay_s)
            self._away.append(now + delay_s)
