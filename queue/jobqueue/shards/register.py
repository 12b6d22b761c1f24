"""What operators do with shards: add, drain, pin and unpin, give a new id space, fence, look and check.

Every verb commits control's word first and then brings it to the shards; repeating a verb that stopped half-way ends
what it began.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.db import DatabaseError, transaction
from django.db.models import F, Max

from jobqueue import dependencies, kinds, policies
from jobqueue.models import Dependency, IdSpace, JobKind, Queue
from jobqueue.policy.slots import SLOTS, balanced
from jobqueue.shard_models import Ring, Shard, SlotMove
from jobqueue.shards import keys, moving, telling
from jobqueue.shards import map as shard_map
from jobsplatform import database, sql
from jobsplatform.database import LATER_SPACES, SEQUENCE_BITS, SEQUENCE_MASK
from jobsplatform.errors import Invalid, JobsPlatformError, NotFound, Unavailable
from jobsplatform.public import is_migrated
from tenants import audit, registry
from tenants.models import Tenant

OLD_WORK_SECONDS: Final = 60  # how long `add` waits for transactions that know nothing of slots


# Making and ending


def add(number: int, *, actor: str, reason: str = "") -> int:
    """Let a shard take part, or again after `drain`: tell it all it must know, then give it its part of the slots.

    Returns how many slots are still on their way. Raises NotFound for a number that the settings do not name, and
    Unavailable when a shard cannot be reached or is not migrated.
    """
    alias = _named(number)
    if not is_migrated(alias):
        raise Unavailable(f"Shard {number} is not migrated; run `manage.py migrateshards`.")
    _begin_slots(number)
    with transaction.atomic():
        shard, is_new = Shard.objects.select_for_update().get_or_create(
            number=number, defaults={"state": Shard.State.DRAINING}
        )
        IdSpace.objects.get_or_create(space=number, defaults={"shard": number, "reason": "first"})
        audit.record("shard.add", f"shard:{number}", actor=actor, reason=reason)
    _require_own_ids(alias, number, is_new)
    tell_everything()
    Shard.objects.filter(pk=shard.pk).update(state=Shard.State.ACTIVE, is_fenced=False)
    left = spread()
    tell_tenants()  # rates are split over one shard more
    return left


def drain(number: int, *, actor: str, reason: str = "") -> int:
    """Give a shard no new work: its slots move to the others; what it has is worked off and stays readable.

    Returns how many slots are still on their way. Raises NotFound, and Invalid when nobody else is there.
    """
    _registered(number)
    with transaction.atomic():
        others = Shard.objects.filter(state=Shard.State.ACTIVE).exclude(number=number)
        if not others.exists():
            raise Invalid.at("/number", "It is the only shard that takes new work.")
        alone = [
            str(ring) for ring in Ring.objects.exclude(queue=None, tenant=None) if ring.shards == [number]
        ]
        if alone:
            raise Invalid.at(
                "/number", f"Only this shard takes {', '.join(alone)}: pin that elsewhere first."
            )
        Shard.objects.filter(number=number).update(state=Shard.State.DRAINING)
        audit.record("shard.drain", f"shard:{number}", actor=actor, reason=reason)
    return spread()


def spread() -> int:
    """Move slots so that every ring is even over its active shards. Returns how many are still on their way."""
    active = set(Shard.objects.filter(state=Shard.State.ACTIVE).values_list("number", flat=True))
    left = 0
    for ring in Ring.objects.order_by("pk"):
        is_general = ring.queue_id is None and ring.tenant_id is None
        if is_general and sorted(active) != ring.shards:
            Ring.objects.filter(pk=ring.pk).update(shards=sorted(active))
        shards = active if is_general else set(ring.shards) & active
        if shards:
            moving.resume()
            owners = Ring.objects.get(pk=ring.pk).owners
            left += moving.move(ring.pk, balanced(owners, shards))
    shard_map.forget()
    return left


def _named(number: int) -> str:
    alias = database.aliases().get(number)
    if alias is None:
        there = ", ".join(map(str, database.aliases()))
        raise NotFound(f"JOBSPLATFORM_SHARDS names no shard {number}; there are {there}.")
    return alias


def _registered(number: int) -> Shard:
    _named(number)
    shard = Shard.objects.filter(number=number).first()
    if shard is None:
        raise NotFound(f"Shard {number} is not added yet.")
    return shard


def _begin_slots(number: int) -> None:
    """The first ring: until now one shard took everything without slots. Raises Unavailable."""
    there = list(Shard.objects.order_by("number").values_list("number", flat=True))
    if there == [number] or Ring.objects.exists():
        return
    if len(there) > 1:
        shard_map.current()  # it makes the ring of a platform that began with several
        return
    values = {"shards": there, "owners": there * SLOTS, "epochs": [1] * SLOTS}
    ring, _ = Ring.objects.get_or_create(queue=None, tenant=None, defaults=values)
    shard_map.forget()
    telling.tell(ring, there[0])
    _wait_for_old_work(database.aliases()[there[0]])


def _wait_for_old_work(alias: str) -> None:
    """Wait until every transaction has ended that may not have seen that there are slots. Raises Unavailable."""
    _, following = keys.horizon(alias)
    ends = time.monotonic() + OLD_WORK_SECONDS
    while keys.horizon(alias)[0] < following:
        sql.rows(
            "jobqueue/slot_turn", {}, alias=alias
        )  # so that transaction ids go on when nobody else writes
        if time.monotonic() > ends:
            raise Unavailable(
                "A transaction that began earlier is still open on the first shard. Repeat it later."
            )
        time.sleep(0.05)


def _require_own_ids(alias: str, number: int, is_new: bool) -> None:
    """Let a new shard begin in its first space. Raises Unavailable when an old one has left its own."""
    last = int(sql.rows("jobqueue/space_last", {}, alias=alias)[0][0])
    if last >> SEQUENCE_BITS in moving.spaces_of(number):
        return
    if not is_new:
        raise Unavailable(
            f"Shard {number} numbers its jobs in a space of others: `shard newspace {number}` first."
        )
    _begin_ids(alias, number)


def _begin_ids(alias: str, space: int) -> None:
    """Let the shard's ids go on in this space, unless they do. Raises Unavailable."""
    sql.rows("jobqueue/space_begin", {"first": space << SEQUENCE_BITS | 1}, alias=alias, writes=True)


def tell_everything() -> None:
    """Tell every shard of all queues, kinds, dependencies, tenants and rings. Raises Unavailable for unreached ones."""
    unreached: set[int] = set()
    for queue in Queue.objects.all():
        unreached.update(policies.push(queue))
    for kind in JobKind.objects.all():
        unreached.update(kinds.push(kind))
    for dependency in Dependency.objects.all():
        unreached.update(dependencies.push(dependency))
    unreached.update(tell_tenants())
    for ring in Ring.objects.all():
        unreached.update(telling.tell_all(ring))
    _require_reached(unreached)


def tell_tenants() -> set[int]:
    """Tell every shard of all tenants. Returns those that were not reached."""
    return {number for tenant in Tenant.objects.all() for number in registry.push(tenant)}


def _require_reached(unreached: set[int] | list[int]) -> None:
    if unreached:
        shards = ", ".join(map(str, sorted(unreached)))
        raise Unavailable(f"These shards were not reached: {shards}. Repeat it.")


# Pins


def pin(
    shards: Sequence[int],
    *,
    queue: str | None = None,
    tenant: str | None = None,
    actor: str,
    reason: str = "",
) -> int:
    """Put a queue or a tenant on these shards alone: new work goes there at once, what waits elsewhere is worked off.

    Returns how many slots are still on their way. Raises NotFound, Invalid, and Unavailable when a shard cannot be
    reached: then nothing is changed.
    """
    wanted = sorted(set(shards))
    if not wanted:
        raise Invalid.at("/shards", "At least one shard.")
    if (queue is None) == (tenant is None):
        raise Invalid.at("", "Pin a queue or a tenant.")
    for number in wanted:
        if _registered(number).state != Shard.State.ACTIVE:
            raise Invalid.at("/shards", f"Shard {number} is drained; add it first.")
    owner = _owner_of(queue, tenant)
    shard_map.current()
    if Shard.objects.count() < 2:
        raise Invalid.at("/shards", "There is one shard.")
    ring = Ring.objects.filter(**owner).first() or _new_ring(owner)
    with transaction.atomic():
        Ring.objects.filter(pk=ring.pk).update(shards=wanted)
        target = f"queue:{queue}" if queue is not None else f"tenant:{tenant}"
        audit.record("shard.pin", target, actor=actor, reason=reason, details={"shards": wanted})
    left = moving.move(ring.pk, balanced(Ring.objects.get(pk=ring.pk).owners, set(wanted)))
    shard_map.forget()
    if tenant is not None:
        registry.push(registry.get(tenant))  # its rates are split over other shards now
    return left


def unpin(*, queue: str | None = None, tenant: str | None = None, actor: str, reason: str = "") -> int:
    """Let a pinned queue or tenant use every shard again; it keeps its own slots. Raises NotFound."""
    ring = Ring.objects.filter(**_owner_of(queue, tenant)).first()
    if ring is None:
        raise NotFound("It is not pinned.")
    active = list(
        Shard.objects.filter(state=Shard.State.ACTIVE).order_by("number").values_list("number", flat=True)
    )
    return pin(active, queue=queue, tenant=tenant, actor=actor, reason=reason)


def _owner_of(queue: str | None, tenant: str | None) -> dict[str, int]:
    if queue is not None:
        return {"queue_id": policies.by_name(queue).id}
    return {"tenant_id": registry.get(str(tenant)).pk}


def _new_ring(owner: dict[str, int]) -> Ring:
    """A ring that owns what the one before it owned, at the same shards. Raises Unavailable: nothing is changed.

    The slots of the rings before it get new epochs everywhere before the new ring counts: an enqueue by an older map
    is refused from then on, and no key can be accepted under two rings.
    """
    away = [number for number in database.aliases() if not _answers(number)]
    _require_reached(away)
    with transaction.atomic():
        rings = list(Ring.objects.select_for_update().order_by("pk"))
        if SlotMove.objects.exists():
            raise Unavailable("Slots are on their way; repeat it when they have arrived.")
        before = next(ring for ring in rings if ring.queue_id is None and ring.tenant_id is None)
        made = Ring.objects.create(
            shards=before.shards, owners=before.owners, epochs=[1] * SLOTS, is_ready=False, **owner
        )
        older = [ring.pk for ring in rings if "queue_id" in owner or ring.pk == before.pk]
        for ring in rings:
            if ring.pk in older:
                epochs = [epoch + 1 for epoch in ring.epochs]
                Ring.objects.filter(pk=ring.pk).update(epochs=epochs, version=F("version") + 1)
    shard_map.forget()
    try:
        for pk in [made.pk, *older]:
            _require_reached(telling.tell_all(Ring.objects.get(pk=pk)))
        _bring_keys(made, [ring for ring in rings if ring.pk in older and ring.tenant_id is not None])
    except JobsPlatformError:
        Ring.objects.filter(pk=made.pk).delete()
        shard_map.forget()
        raise
    Ring.objects.filter(pk=made.pk).update(is_ready=True, version=F("version") + 1)
    shard_map.forget()
    _require_reached(telling.tell_all(Ring.objects.get(pk=made.pk)))
    return Ring.objects.get(pk=made.pk)


def _bring_keys(made: Ring, tenants: Sequence[Ring]) -> None:
    """Keys of a queue that were in tenants' rings go to where the queue's own ring looks for them."""
    for ring in tenants:
        for source, target, slots in moving.ways(ring.owners, made.owners):
            spaces = moving.spaces_of(target)
            keys.copy(made, slots, source, target, spaces=spaces, since=None, tenant_id=ring.tenant_id)


def _answers(number: int) -> bool:
    try:
        sql.rows("jobqueue/clock", {}, alias=database.aliases()[number])
    except JobsPlatformError:
        return False
    return True


def shards_of_tenant(tenant_id: int) -> list[int]:
    """The shards that take new work of a tenant (as control has them; those of queues that are pinned not counted)."""
    if len(database.aliases()) == 1:
        return list(database.aliases())
    pinned = Ring.objects.filter(tenant_id=tenant_id).first()
    found = Shard.objects.filter(state=Shard.State.ACTIVE).order_by("number").values_list("number", flat=True)
    return list(found if pinned is None else pinned.shards) or list(database.aliases())


def fence(number: int, *, actor: str, reason: str = "") -> None:
    """Say that a shard runs nothing and starts nothing: its shares of limits are granted elsewhere.

    Only for a shard that is known to be off: one that runs on would exceed limits. `add` ends it. Raises NotFound.
    """
    _registered(number)
    with transaction.atomic():
        Shard.objects.filter(number=number).update(is_fenced=True)
        audit.record("shard.fence", f"shard:{number}", actor=actor, reason=reason)


# Id spaces


def new_space(number: int, *, actor: str, reason: str = "") -> int:
    """Let a shard number its jobs in a space that nobody had: after a restore, or a failover that lost commits.

    Returns the space. Raises NotFound, Unavailable.
    """
    _registered(number)
    with transaction.atomic():
        list(Shard.objects.select_for_update().order_by("number"))  # one new space at a time
        last = IdSpace.objects.aggregate(last=Max("space"))["last"] or 0
        space = max(last + 1, LATER_SPACES)
        IdSpace.objects.create(space=space, shard=number, reason=reason[:200] or "restored")
        audit.record(
            "shard.new_space", f"shard:{number}", actor=actor, reason=reason, details={"space": space}
        )
    database.forget_spaces()
    _begin_ids(database.aliases()[number], space)
    return space


def later_spaces() -> dict[int, int]:
    """Space → shard, of those whose number says nothing."""
    return dict(IdSpace.objects.filter(space__gte=LATER_SPACES).values_list("space", "shard"))


# Looking


@dataclass(frozen=True, slots=True)
class Standing:
    """A shard as it is: None where it could not be asked."""

    number: int
    state: str
    is_fenced: bool
    is_reached: bool
    slots: int
    spaces: list[int]
    waiting: int | None
    running: int | None


def standings() -> list[Standing]:
    """Every shard that the settings name, by number."""
    shards = {shard.number: shard for shard in Shard.objects.all()}
    general = Ring.objects.filter(queue=None, tenant=None).first()
    return [_standing(number, shards.get(number), general) for number in sorted(database.aliases())]


def _standing(number: int, shard: Shard | None, general: Ring | None) -> Standing:
    try:
        waiting, running = sql.rows("jobqueue/shard_load", {}, alias=database.aliases()[number])[0]
        is_reached = True
    except JobsPlatformError:
        waiting, running, is_reached = None, None, False
    return Standing(
        number,
        "new" if shard is None else shard.state,
        shard is not None and shard.is_fenced,
        is_reached,
        (SLOTS if shard is not None else 0) if general is None else general.owners.count(number),
        moving.spaces_of(number),
        waiting,
        running,
    )


def pins() -> list[Ring]:
    """Rings of queues and tenants."""
    return list(
        Ring.objects.exclude(queue=None, tenant=None).select_related("queue", "tenant").order_by("pk")
    )


def faults() -> Iterator[str]:
    """What is not as control says, a sentence each."""
    for shard in Shard.objects.order_by("number"):
        if shard.number not in database.aliases():
            yield f"shard {shard.number}: JOBSPLATFORM_SHARDS does not name it"
            continue
        try:
            yield from (f"shard {shard.number}: {fault}" for fault in _faults_on(shard))
        except (JobsPlatformError, DatabaseError):
            yield f"shard {shard.number}: cannot be reached"
    for number in sorted(database.aliases().keys() - set(Shard.objects.values_list("number", flat=True))):
        yield f"shard {number}: is named by JOBSPLATFORM_SHARDS and not added yet"
    for stuck in SlotMove.objects.select_related("ring"):
        yield f"{stuck}: still on their way"


def _faults_on(shard: Shard) -> Iterator[str]:
    alias = database.aliases()[shard.number]
    if not is_migrated(alias):
        yield "has migrations to be run"
        return
    known = {row[0]: row[2:] for row in sql.rows("jobqueue/slot_rings", {}, alias=alias)}
    for ring in Ring.objects.all():
        slots = [slot for slot, owner in enumerate(ring.owners) if owner == shard.number and ring.is_ready]
        wanted = (len(slots), sum(ring.epochs[slot] for slot in slots))
        if known.get(ring.pk, (0, 0)) != wanted:
            yield f"has other slots of {ring} than control says"
    for ring_id in known.keys() - set(Ring.objects.values_list("pk", flat=True)):
        yield f"knows slots of a ring {ring_id} that is no more"
    last = int(sql.rows("jobqueue/space_last", {}, alias=alias)[0][0])
    if last >> SEQUENCE_BITS not in moving.spaces_of(shard.number):
        yield f"numbers its jobs in space {last >> SEQUENCE_BITS}, which is not its own"
    elif last & SEQUENCE_MASK > SEQUENCE_MASK // 2:
        yield "has used half of its id space: give it a new one"


def repair() -> int:
    """Tell shards what they missed of rings, and end moves that were broken off. Returns how many of both.

    A shard that was away has slots to get when it is back.
    """
    if not Ring.objects.exists():
        return 0
    ended = moving.resume()
    for number in database.aliases():
        try:
            ended += _repair_on(number)
        except JobsPlatformError:
            continue
    return ended


def _repair_on(number: int) -> int:
    """Tell one shard of rings that it knows less of than control, and of those that are no more. Raises Unavailable."""
    known = {
        row[0]: row[1] for row in _rings_on(number)
    }  # first: what is there and not in control then is gone
    rings = list(Ring.objects.all())
    behind = [ring for ring in rings if known.get(ring.pk, 0) < ring.version]
    gone = known.keys() - {ring.pk for ring in rings}
    for ring in behind:
        telling.tell(ring, number)
    for ring_id in gone:
        telling.forget_ring(ring_id, number)
    return len(behind) + len(gone)


def _rings_on(number: int) -> list[sql.Row]:
    return sql.rows("jobqueue/slot_rings", {}, alias=database.aliases()[number])
