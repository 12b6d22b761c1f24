"""Queues as their users see them: which there are, and how full they are."""

from __future__ import annotations

from jobqueue import policies, stats
from jobqueue.api import bodies
from jobqueue.api.calls import found_queue, queue_in_path, scope_of
from jobqueue.api.wire import Members
from jobqueue.policies import QueuePolicy
from jobsplatform import cursors
from jobsplatform.http import Call, Endpoint, Reply
from jobsplatform.instants import format_optional
from jobsplatform.schemas import INSTANT, NUMBER, TEXT, TRUTH, described, page_of, words

_BAND = described("Band", {"name": TEXT, "weight": NUMBER, "strict": TRUTH, "bulk": TRUTH})
QUEUE = described(
    "Queue",
    {
        "name": TEXT,
        "bands": {"type": "array", "items": _BAND},
        "default_priority": NUMBER,
        "lease_s": NUMBER,
        "max_attempts": NUMBER,
        "dedup_window_s": NUMBER,
        "paused": TRUTH,
        "intake_paused": TRUTH,
    },
)
_COUNTS = {"type": "object", "additionalProperties": NUMBER}
_AGES = {"type": "object", "additionalProperties": {"type": "number"}}
STATS = described(
    "QueueStats",
    {
        "visible": _COUNTS,
        "oldest_age_s": _AGES,
        "scheduled": NUMBER,
        "leased": NUMBER,
        "dlq": NUMBER,
        "shards": {"type": "object", "additionalProperties": words(["ok", "unknown"])},
        "as_of": INSTANT,
        "capped?": TRUTH,
        "partial?": TRUTH,
        "unknown_shards?": {"type": "array", "items": NUMBER},
    },
)
SCALE = described(
    "QueueScale",
    {"backlog": NUMBER, "runnable": NUMBER, "desired_workers": NUMBER, "oldest_age_s": {"type": "number"}},
)


class ListQueues(Endpoint):
    """Queues that the token may use, newest first."""

    query = bodies.PAGE
    replies = {200: page_of(QUEUE)}

    def check(self, call: Call) -> None:
        self.before = cursors.read(call)

    def act(self, call: Call) -> Reply:
        found = sorted(policies.visible(scope_of(call)), key=lambda queue: -queue.id)
        if self.before is not None:
            found = [queue for queue in found if queue.id < self.before[0]]
        shown = found[: call.query["limit"]]
        last = (shown[-1].id,) if len(found) > len(shown) else None
        return Reply(200, {"items": [_queue(one) for one in shown], "next": cursors.write(call, last)})


class ShowStats(Endpoint):
    """How much waits in each band and since when; at most two seconds old. A tenant's token counts its own."""

    replies = {200: STATS}

    def check(self, call: Call) -> None:
        self.queue = queue_in_path(call)

    def act(self, call: Call) -> Reply:
        queue = found_queue(call, self.queue)
        return Reply(200, _stats(stats.of(queue, scope_of(call))))


class ShowScale(Endpoint):
    """What an autoscaler needs: the workers that would run what runs now and work off the rest in a minute."""

    replies = {200: SCALE}

    def check(self, call: Call) -> None:
        self.queue = queue_in_path(call)

    def act(self, call: Call) -> Reply:
        found = stats.of(found_queue(call, self.queue), scope_of(call))
        return Reply(
            200,
            {
                "backlog": found.backlog,
                "runnable": found.runnable,
                "desired_workers": found.desired_workers,
                "oldest_age_s": round(found.oldest_s, 3),
            },
        )


def _queue(queue: QueuePolicy) -> Members:
    return {
        "name": queue.name,
        "bands": [
            {"name": band.name, "weight": band.weight, "strict": band.strict, "bulk": band.bulk}
            for band in queue.bands
        ],
        "default_priority": queue.default_priority,
        "lease_s": queue.lease_s,
        "max_attempts": queue.max_attempts,
        "dedup_window_s": queue.dedup_window_s,
        "paused": queue.is_dispatch_paused,
        "intake_paused": queue.is_intake_paused,
    }


def _stats(found: stats.Stats) -> Members:
    ages = {f"p{band}": round(age, 3) for band, age in enumerate(found.oldest_age_s) if age is not None}
    members: Members = {
        "visible": {f"p{band}": count for band, count in enumerate(found.visible)},
        "oldest_age_s": ages,
        "scheduled": found.scheduled,
        "leased": found.leased,
        "dlq": found.dead,
        "shards": {str(number): "ok" if reached else "unknown" for number, reached in found.shards.items()},
        "as_of": format_optional(found.as_of),
    }
    if found.is_capped:
        members["capped"] = True
    if unknown := [number for number, reached in found.shards.items() if not reached]:
        members |= {"partial": True, "unknown_shards": unknown}
    return members
