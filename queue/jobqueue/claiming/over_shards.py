"""A claim over several shards: strict bands from the shards with the oldest heads, then the band whose turn it is.

Bands take turns over what all shards hold together, and each is claimed from its best shards, three at once. Before
each round the claim looks at the map anew: what was heard of meanwhile counts, what has grown old is asked for again,
and so is what a shard said before it was claimed from. Shards of which nothing is known are tried last.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from jobqueue.claiming import inversions, summaries
from jobqueue.claiming.transaction import QueueClaim, Started, Urgent, live_leases
from jobqueue.claiming.types import ClaimRequest, Taken
from jobqueue.policies import QueuePolicy
from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import Part, in_parts
from jobqueue.policy.routing import PARALLEL_MAX, Aim, Heads, strict_aims, used, weighted_aims
from jobqueue.policy.types import Chosen, Turn
from jobqueue.types import Scope
from jobsplatform import database, everywhere, reach, sql

ROUNDS_MAX: Final = 6  # looks of one part of a claim: words that were old cost another
CLASSES_MAX: Final = 10_000

Found = list[tuple[str, Taken]]


class Ways(NamedTuple):
    """How a claim goes on one shard alone, how it leaves word there that somebody asks, and where details are kept."""

    whole: Callable[[str, ClaimRequest, bytes, Scope, datetime | None, dict[int, sql.Row]], list[Taken]]
    note: Callable[[QueueClaim], None]
    details: dict[int, sql.Row]


class _Memory(NamedTuple):
    """Whose turn it is in one queue and class of claims, over all shards, as this process keeps it."""

    weighted: Turn | None = None
    of_floor: Turn | None = None
    floor: Floor = Floor()


_memories: dict[tuple[int, bytes], _Memory] = {}
_lock = threading.Lock()


def forget() -> None:
    """Drop what this process remembers."""
    _memories.clear()
    summaries.forget()


def repeated(request: ClaimRequest, call_hash: bytes, scope: Scope, now: datetime | None) -> Found:
    """The live leases of an earlier claim with this key, wherever they were made. Raises KeyConflict."""
    if request.claim_key is None:
        return []
    ids, key = [queue.id for queue in request.queues], request.claim_key

    def one(alias: str) -> Found:
        return [(alias, row) for row in live_leases(alias, key, call_hash, ids, scope, now)]

    return [pair for found in everywhere.ask(one, unknown=[]) for pair in found]


def claim(
    request: ClaimRequest,
    call_hash: bytes,
    scope: Scope,
    now: datetime | None,
    ways: Ways,
    *,
    urgent_first: bool = False,
) -> Found:
    """Leases of several shards, most urgent first. Raises KeyConflict.

    With `urgent_first` strict work is not held up by what else there is: that is left to another claim.

    Raises Unavailable when no shard can be reached; one that is away costs nothing but its own work.
    """
    found = repeated(request, call_hash, scope, now)
    if found:
        return found
    run = _Claim(request, call_hash, scope, now, ways)
    run.urgent_first = urgent_first
    run.look()
    unknown = run.view.unknown
    if len(unknown) == len(database.aliases()):  # raises what they have to say
        everywhere.first(lambda alias: bool(ways.whole(alias, request, call_hash, scope, now, {})))
    if request.claim_key is not None:
        run.on_one_shard()
    else:
        run.over_queues()
    if not run.is_cut and (request.claim_key is None or not run.found):
        run.blind([number for number in unknown if not reach.is_down(database.aliases()[number])])
    return run.found


def _class_of(request: ClaimRequest, scope: Scope) -> summaries.Class:
    return summaries.Class(
        tuple(sorted(queue.id for queue in request.queues)),
        request.max_priority,
        None if request.kinds is None else tuple(sorted(request.kinds)),
        scope.tenant_id,
    )


def claim_told(
    request: ClaimRequest, call_hash: bytes, scope: Scope, now: datetime | None, ways: Ways
) -> Found:
    """Leases of strict work that somebody has just told of, from the shards named; nothing else is looked at.

    It takes the round trips of one claim on one shard. What bulk bands are owed stays theirs.
    """
    run = _Claim(request, call_hash, scope, now, ways)
    for queue in request.queues:
        if run.left:
            asked = replace(request, limit=run.left)
            run.found += _QueueTurn(run, queue, asked).run_told()
    return run.found


class _Claim:
    """One claim over the shards, until its limit is reached or nothing is left."""

    def __init__(
        self,
        request: ClaimRequest,
        call_hash: bytes,
        scope: Scope,
        now: datetime | None,
        ways: Ways,
    ) -> None:
        self.request, self.call_hash, self.scope, self.now = request, call_hash, scope, now
        self.ways, self.asked = ways, _class_of(request, scope)
        self.found: Found = []
        self.view = summaries.View({}, [], {})
        self.spent: set[tuple[int, int, int]] = set()  # queue, shard, band: gave less than was asked
        self.failed: set[int] = set()  # shards that gave no answer
        self.urgent_first = False
        self.is_cut = False  # strict work was found, and nothing else is to hold it up

    @property
    def heads(self) -> dict[int, Heads]:
        return self.view.heads

    def look(self) -> None:
        """See the map as it is now. What this claim has found out stands: it asks nobody in vain twice."""
        if summaries.is_current(self.asked, self.view):
            return
        self.view = summaries.read(self.asked)
        for queue_id, heads in self.heads.items():
            for number, bands in heads.by_shard.items():
                for band in list(bands):
                    if number in self.failed or (queue_id, number, band) in self.spent:
                        del bands[band]

    def spoil(self, number: int) -> None:
        """This shard was claimed from: what it said before is not so any more."""
        summaries.spoil(self.asked, [number])

    @property
    def left(self) -> int:
        return 0 if self.is_cut else self.request.limit - len(self.found)

    def on_one_shard(self) -> None:
        """With a claim_key all leases come from one shard, that of the most urgent head: a repeat finds them there."""
        first = secrets.randbelow(max(database.aliases()) + 1)
        heads = [
            (band, waiting.since, number < first, number)
            for queue in self.request.queues
            for number, bands in self.heads.get(queue.id, Heads()).by_shard.items()
            for band, waiting in bands.items()
        ]
        tried: set[int] = set()
        for *_, number in sorted(heads):
            if self.found:
                return
            if number not in tried:
                tried.add(number)
                self._on_shard_over_queues(number)

    def _on_shard_over_queues(self, number: int) -> None:
        alias = database.aliases()[number]
        self.spoil(number)
        with suppress(*everywhere.AWAY):
            rows = self.ways.whole(
                alias, self.request, self.call_hash, self.scope, self.now, self.ways.details
            )
            self.found += [(alias, row) for row in rows]

    def over_queues(self) -> None:
        """Strict bands of all queues first, the oldest head first; then the queues in turn."""
        queues = list(self.request.queues)
        if not queues:
            return
        for queue, most in self._strict_turns(queues):
            if self.left:
                self.queue(queue, self.left, most)
        start = secrets.randbelow(len(queues))
        order = queues[start:] + queues[:start]
        while order and self.left:
            unspent = []
            for place, queue in enumerate(order):
                share = -(-self.left // (len(order) - place))
                if share and self.queue(queue, share, None) == share:
                    unspent.append(queue)
            order = unspent if len(order) > 1 else []

    def _strict_turns(self, queues: Sequence[QueuePolicy]) -> list[tuple[QueuePolicy, int]]:
        if len(queues) == 1:
            return []
        turns = []
        for queue in queues:
            strict = sorted(queue.scheduling.strict_bands)
            bands = self.heads.get(queue.id, Heads()).by_shard.values()
            since = [one[band].since for one in bands for band in strict if band in one]
            if since:
                turns.append((min(since), queue.id, queue, strict[-1]))
        return [(queue, most) for _, _, queue, most in sorted(turns, key=lambda turn: turn[:2])]

    def queue(self, queue: QueuePolicy, limit: int, max_priority: int | None) -> int:
        """Claim from one queue. Returns how many."""
        self.look()
        heads = self.heads.get(queue.id)
        if heads is None or not any(heads.by_shard.values()):
            return 0
        bounds = [bound for bound in (self.request.max_priority, max_priority) if bound is not None]
        request = replace(self.request, limit=limit, max_priority=min(bounds, default=None))
        before = len(self.found)
        holders = [number for number, bands in heads.by_shard.items() if bands]
        if len(holders) == 1:  # its shard knows best
            self._whole(holders[0], queue, request)
        else:
            self.found += _QueueTurn(self, queue, request).run()
        return len(self.found) - before

    def _whole(self, number: int, queue: QueuePolicy, request: ClaimRequest) -> None:
        alias = database.aliases()[number]
        try:
            request = replace(request, queues=(queue,))
            rows = self.ways.whole(alias, request, self.call_hash, self.scope, self.now, self.ways.details)
        except everywhere.AWAY:
            if not self.found:
                raise
            return
        finally:
            self.spoil(number)
        if len(rows) < request.limit:
            self.spent.update((queue.id, number, band) for band in range(len(queue.bands)))
        self.found += [(alias, row) for row in rows]

    def blind(self, numbers: Sequence[int]) -> None:
        """Shards of which nothing is known, last."""
        for number in random.sample(numbers, len(numbers)):
            for queue in self.request.queues:
                if self.left:
                    request = replace(self.request, limit=self.left)
                    try:
                        self._whole(number, queue, request)
                    except everywhere.AWAY:
                        break


class _QueueTurn:
    """One queue's part of a claim, from several shards."""

    def __init__(self, claim: _Claim, queue: QueuePolicy, request: ClaimRequest) -> None:
        self.claim, self.queue, self.request = claim, queue, request
        self.heads = claim.heads.get(queue.id, Heads())
        self.found: Found = []
        self.parts: dict[int, QueueClaim] = {}
        some = next(iter(database.aliases().values()))
        first = QueueClaim(some, queue, request, claim.call_hash, claim.scope, claim.now)
        self.policy, self.bands = first.policy, list(first.bands)
        self.key = (queue.id, first.claim_class)
        self.strict = sorted(self.policy.strict_bands & set(self.bands))
        self.looked_at = time.monotonic()

    def run(self) -> Found:
        memory = self._remembered()
        _, floor = in_parts(self.policy, memory.floor, self.request.limit, self.bands, self._start)
        self._remember(floor)
        return self.found

    def run_told(self) -> Found:
        """Strict work alone, from where it was told of, until a start is owed to bulk bands."""
        floor = self._remembered().floor
        left = self.request.limit
        if self.policy.bulk_bands & set(self.bands):
            left = floor.free(self.policy, left)
        for band, shards in sorted(summaries.told(self.queue.id, self.strict).items()):
            few = shards[: min(PARALLEL_MAX, left)]
            aims = [Aim(shard, band, left // len(few), Chosen.STRICT) for shard in few]
            left -= len(self._take(Part.STRICT, aims))
        self._remember(floor.after(self.policy, strict=len(self.found), weighted=0, bulk=0))
        return self.found

    def _remembered(self) -> _Memory:
        memory = _memories.get(self.key, _Memory())
        self.weighted, self.of_floor = memory.weighted, memory.of_floor
        return memory

    def _remember(self, floor: Floor) -> None:
        with _lock:
            if len(_memories) >= CLASSES_MAX:
                _memories.clear()
            _memories[self.key] = _Memory(self.weighted, self.of_floor, floor)

    def _part(self, number: int) -> QueueClaim:
        if number not in self.parts:
            claim, alias = self.claim, database.aliases()[number]
            self.parts[number] = QueueClaim(
                alias, self.queue, self.request, claim.call_hash, claim.scope, claim.now
            )
            with suppress(*everywhere.AWAY):
                claim.ways.note(self.parts[number])
        return self.parts[number]

    def _start(self, part: Part, limit: int) -> list[Started]:
        started: list[Started] = []
        for _ in range(ROUNDS_MAX):
            if self.claim.is_cut and part is not Part.FLOOR:
                break
            self._look()
            left = limit - len(started)
            if part is Part.WEIGHTED and (urgent := self._aims(Part.STRICT, left)):
                started += self._take(Part.STRICT, urgent)  # it came while this claim was under way
                continue
            aims = self._aims(part, left)
            if not aims:
                break
            started += self._take(part, aims)
            if len(started) >= limit:
                break
        return started

    def _look(self) -> None:
        self.looked_at = time.monotonic()
        self.claim.look()
        self.heads = self.claim.heads.get(self.queue.id, Heads())

    def _aims(self, part: Part, limit: int) -> list[Aim]:
        if limit <= 0:
            return []
        if part is Part.STRICT:
            return strict_aims(self.policy, self.heads, self.bands, limit)
        is_floor = part is Part.FLOOR
        turn = self.of_floor if is_floor else self.weighted
        return weighted_aims(self.policy, turn, self.heads, self.bands, limit, floor=is_floor)

    def _take(self, part: Part, aims: Sequence[Aim]) -> list[Started]:
        """Claim as the aims say, each shard's own one after the other, the shards at once."""
        known = self.heads.bands(range(len(self.queue.bands)))
        by_shard: dict[int, list[Aim]] = {}
        for aim in aims:
            by_shard.setdefault(aim.shard, []).append(aim)
        answers = summaries.together([partial(self._on_shard, part, own) for own in by_shard.values()])
        started: list[Started] = []
        by_band: dict[int, Found] = {}
        for number, answer in zip(by_shard, answers, strict=True):
            self.claim.spoil(number)
            if isinstance(answer, Exception):
                self._failed(number, answer)
                continue
            alias = database.aliases()[number]
            self.claim.ways.details.update(self.parts[number].details)
            for aim, got in answer:
                self.heads.took(aim, len(got))
                if len(got) < aim.limit:
                    self.claim.spent.add((self.queue.id, number, aim.band))
                self._used(part, aim, len(got))
                by_band.setdefault(aim.band, []).extend((alias, one.taken) for one in got)
                inversions.started(self.queue, aim.band, aim.chosen, len(got), known)
                started += got
        if part is Part.STRICT and started and self.claim.urgent_first:
            self.claim.is_cut = True
        self.found += [one for _, found in sorted(by_band.items()) for one in found]
        return started

    def _on_shard(self, part: Part, aims: Sequence[Aim]) -> list[tuple[Aim, list[Started]]]:
        claim = self._part(aims[0].shard)
        taken: list[tuple[Aim, list[Started]]] = []
        for aim in aims:
            if part is not Part.STRICT and summaries.told(self.queue.id, self.strict, since=self.looked_at):
                break  # it comes first: what is left of these aims is for another round
            try:
                got = claim.start_band(part, aim.band, aim.limit, aim.chosen)
            except Urgent:
                summaries.spoil(self.claim.asked, [aim.shard])
                break
            except everywhere.AWAY:
                if not taken:
                    raise
                break  # leases are made: an error would lose them to their expiry
            taken.append((aim, got))
        return taken

    def _used(self, part: Part, aim: Aim, count: int) -> None:
        if part is Part.FLOOR:
            self.of_floor = used(self.policy, self.of_floor, [aim.band] * count)
        elif part is Part.WEIGHTED:
            self.weighted = used(self.policy, self.weighted, [aim.band] * count)

    def _failed(self, number: int, error: Exception) -> None:
        """A shard that is away gives nothing."""
        if not isinstance(error, everywhere.AWAY):
            raise error
        self.heads.by_shard[number] = {}
        self.claim.failed.add(number)
