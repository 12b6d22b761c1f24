"""Moves slots from shard to shard. The one invariant: at no instant do two shards accept keys of one slot.

    1  control: the slots have no owner, under a new epoch          (new maps refuse their keys)
    2  the source is told, and has ended what it had accepted       (old maps are refused too)
    3  the keys that were written since the first copy are copied
    4  control: the target owns them; the target is told

Most keys are copied before the first step, so that the pause lasts as long as one look at the newest keys. Each step
may be repeated: a move that was broken off is taken up by the dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import F

from jobqueue.models import IdSpace
from jobqueue.policy.slots import NOBODY
from jobqueue.shard_models import Ring, SlotMove
from jobqueue.shards import keys, telling
from jobqueue.shards import map as shard_map
from jobsplatform import database, events
from jobsplatform.errors import JobsPlatformError


def move(ring_id: int, wanted: Sequence[int]) -> int:
    """Give the slots of a ring these owners; all of it or, when a shard cannot be reached, what could be moved.

    Returns how many slots are still elsewhere: the dispatcher tries them again. Raises Unavailable without control.
    """
    resume()
    ring = Ring.objects.get(pk=ring_id)
    for source, target, slots in ways(ring.owners, wanted):
        try:
            _carry(ring.pk, source, target, slots)
        except JobsPlatformError as error:
            events.emit("slots_waiting", ring=ring.pk, source=source, target=target, reason=str(error)[:200])
    return sum(one != other for one, other in zip(Ring.objects.get(pk=ring_id).owners, wanted, strict=True))


def resume() -> int:
    """Take up moves that were broken off. Returns how many ended."""
    ended = 0
    for moving in SlotMove.objects.select_related("ring").order_by("pk"):
        try:
            _finish(moving, since=None)
            ended += 1
        except JobsPlatformError:
            continue
    return ended


def ways(owners: Sequence[int], wanted: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Source, target and slots of each move that leads from these owners to those."""
    found: dict[tuple[int, int], list[int]] = {}
    for slot, (source, target) in enumerate(zip(owners, wanted, strict=True)):
        if source not in (target, NOBODY):
            found.setdefault((source, target), []).append(slot)
    return [(source, target, slots) for (source, target), slots in sorted(found.items())]


def _carry(ring_id: int, source: int, target: int, slots: Sequence[int]) -> None:
    ring = Ring.objects.get(pk=ring_id)  # as it is now: a copy under an older version is refused
    telling.tell(ring, target)  # is it there at all?
    since, _ = keys.horizon(database.aliases()[source])
    keys.copy(ring, slots, source, target, spaces=spaces_of(target), since=None)
    with transaction.atomic():
        held = Ring.objects.select_for_update().get(pk=ring.pk)
        ours = [slot for slot in slots if held.owners[slot] == source]
        if not ours:
            return
        moving = SlotMove.objects.create(ring=held, slots=ours, source=source, target=target)
        _own(held, ours, NOBODY)
    _finish(moving, since=since)


def _finish(moving: SlotMove, since: int | None) -> None:
    """Steps 2 to 4. Raises Unavailable: the move stands, and is taken up later."""
    ring = Ring.objects.get(pk=moving.ring_id)
    if not SlotMove.objects.filter(pk=moving.pk).exists():
        return  # another process has ended it
    telling.tell(ring, moving.target)  # this version, in which it does not own them: later ones stop the copy
    telling.tell(ring, moving.source)
    keys.copy(ring, moving.slots, moving.source, moving.target, spaces=spaces_of(moving.target), since=since)
    with transaction.atomic():
        if not SlotMove.objects.select_for_update().filter(pk=moving.pk).exists():
            return
        held = Ring.objects.select_for_update().get(pk=moving.ring_id)
        _own(held, moving.slots, moving.target)
        SlotMove.objects.filter(pk=moving.pk).delete()
    shard_map.forget()
    events.emit("slots_moved", count=len(moving.slots), source=moving.source, target=moving.target)
    telling.tell(Ring.objects.get(pk=moving.ring_id), moving.target)


def _own(ring: Ring, slots: Sequence[int], owner: int) -> None:
    """Give slots of a locked ring an owner, under a new epoch each."""
    owners, epochs = list(ring.owners), list(ring.epochs)
    for slot in slots:
        owners[slot] = owner
        epochs[slot] += 1
    Ring.objects.filter(pk=ring.pk).update(owners=owners, epochs=epochs, version=F("version") + 1)


def spaces_of(number: int) -> list[int]:
    """The id spaces of a shard."""
    return list(IdSpace.objects.filter(shard=number).values_list("space", flat=True))
