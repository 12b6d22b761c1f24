"""Slots of request keys: which one a key has, and how slots are spread over shards with as few moves as can be."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

SLOTS: Final = 4_096  # fixed, so that a key keeps its slot when shards come and go
NOBODY: Final = -1  # the owner of a slot that moves


def slot_of(tenant_id: int, queue_id: int, namespace: int, key: str) -> int:
    """The slot of a request key (NFC): 12 bits of SHA-256. `slot_keys.sql` computes the same."""
    text = f"{tenant_id}:{queue_id}:{namespace}:{key}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big") >> 4


def balanced(owners: Sequence[int], shards: Collection[int]) -> list[int]:
    """The owners after as few moves as can be, so that each of `shards` has its even part and nobody else any.

    Raises ValueError without shards.
    """
    if not shards:
        raise ValueError("slots need a shard")
    held = Counter(owner for owner in owners if owner in shards)
    whole, rest = divmod(len(owners), len(shards))
    # Those that have most may keep one more: that is one move less.
    order = sorted(shards, key=lambda number: (-held[number], number))
    parts = {number: whole + (place < rest) for place, number in enumerate(order)}
    after, left = list(owners), dict(parts)
    homeless = []
    for slot, owner in enumerate(owners):
        if left.get(owner, 0) > 0:
            left[owner] -= 1
        else:
            homeless.append(slot)
    takers = [number for number in sorted(shards) for _ in range(left[number])]
    for slot, number in zip(homeless, takers, strict=True):
        after[slot] = number
    return after
