"""In which order waiting jobs would start if nothing else arrived: the policy's own answer, a few claims ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from jobqueue.policy.floor import Floor
from jobqueue.policy.parts import Part, in_parts
from jobqueue.policy.plan import plan, plan_strict
from jobqueue.policy.types import Head, Plan, Policy, State, Take

STEP: Final = 20  # opportunities of one imagined claim


class _Started(NamedTuple):
    take: Take | None


class Line:
    """The waiting jobs of one queue as claims of one class see them.

    `states` and `heads` are those of the strict and of the weighted part.
    """

    def __init__(
        self,
        policy: Policy,
        states: Mapping[Part, State],
        heads: Mapping[Part, Sequence[Head]],
        *,
        now: datetime | None = None,
    ) -> None:
        self.policy, self.now = policy, now
        self.states = dict(states)
        self.heads = {part: list(known) for part, known in heads.items()}
        self.floor = Floor()

    def until(self, job_id: int, limit: int) -> list[Take]:
        """The first starts, up to and with that of `job_id`; at most `limit`, rounded up to whole claims."""
        takes: list[Take] = []
        while len(takes) < limit:
            started, self.floor = in_parts(
                self.policy, self.floor, STEP, range(len(self.policy.bands)), self._take
            )
            for one in started:
                assert one.take is not None
                takes.append(one.take)
                if one.take.head.job_id == job_id:
                    return takes
            if not started:
                break
        return takes

    def _take(self, part: Part, limit: int) -> list[_Started]:
        own = Part.STRICT if part is Part.STRICT else Part.WEIGHTED
        planned = self._plan(part, own, limit)
        self.states[own] = planned.state
        gone = {take.head.job_id for take in planned.takes}
        self.heads[own] = [head for head in self.heads[own] if head.job_id not in gone]
        return [_Started(take) for take in planned.takes]

    def _plan(self, part: Part, own: Part, limit: int) -> Plan:
        state, heads = self.states[own], self.heads[own]
        if part is Part.STRICT:
            return plan_strict(self.policy, state, heads, limit)
        return plan(self.policy, state, heads, limit, now=self.now, bulk_only=part is Part.FLOOR)
