"""The leases that a worker holds: when each must be renewed, and what its holder must know. Pure; safe for threads.

Ends are kept on the local monotonic clock, and moved by differences of the server's instants: no two clocks are
ever compared.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from jobsplatform_client import errors
from jobsplatform_client.values import Claimed, Lease, Renewed

RENEWALS_A_LEASE: Final = 3
AGAIN_MIN_S: Final = 0.5

Ending = Literal["refused", "lapsed", "given back"]


@dataclass(slots=True, eq=False)
class Held:
    """One lease. `ends_at` and `renew_at` in seconds of the book's clock."""

    lease: Lease
    expires_at: datetime
    span_s: float
    ends_at: float
    renew_at: float
    has_begun: bool
    cancel_requested: bool = False
    lost: Ending | None = None
    is_worker_ending: bool = field(default=False)


class LeaseBook:
    """What this worker holds, from claim to settlement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, claimed: Claimed, now: float, *, have_begun: bool, is_repeat: bool) -> list[Held]:
        """Enter new leases. `is_repeat`: they may be older than the answer, so they are renewed at once."""
        added = []
        for lease in claimed.leases:
            span_s = (lease.expires_at - claimed.server_time).total_seconds()
            renew_at = now if is_repeat else now + span_s / RENEWALS_A_LEASE
            added.append(Held(lease, lease.expires_at, span_s, now + span_s, renew_at, have_begun))
        with self._lock:
            self._held.update({(one.lease.job_id, one.lease.generation): one for one in added})
        return added

    def drop(self, held: Held) -> None:
        """It is settled, or its end is known."""
        with self._lock:
            self._held.pop((held.lease.job_id, held.lease.generation), None)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def due(self, now: float) -> list[Held]:
        """Those to renew now. Marks what has lapsed meanwhile."""
        living = [one for one in self.all() if one.lost is None]
        for one in living:
            if one.ends_at <= now:
                one.lost = "lapsed"  # by our clock; the platform judges, so a result is still sent
        return [one for one in living if one.lost is None and one.renew_at <= now]

    def note(self, held: Held, answer: Renewed | errors.JobsPlatformError, sent_at: float) -> None:
        """What a renewal that was sent at `sent_at` was answered."""
        if isinstance(answer, Renewed):
            held.ends_at += (answer.expires_at - held.expires_at).total_seconds()
            held.expires_at = answer.expires_at
            held.renew_at = sent_at + held.span_s / RENEWALS_A_LEASE
            held.cancel_requested |= answer.cancel_requested
            if held.lost == "lapsed":
                held.lost = None
        elif isinstance(answer, errors.MaxRuntime):
            held.renew_at = math.inf
        elif isinstance(answer, errors.Refused) and answer.status < 429:
            held.lost = held.lost or "refused"
        else:
            self.again([held], sent_at)

    def again(self, held: Sequence[Held], now: float) -> None:
        """No answer: renew in a third of what is left."""
        for one in held:
            one.renew_at = now + max(AGAIN_MIN_S, (one.ends_at - now) / RENEWALS_A_LEASE)
