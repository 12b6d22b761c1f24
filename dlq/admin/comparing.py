"""What two attempts of a job said: their messages, tracebacks above all, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dlq import differing
from jobqueue import reads
from jobqueue.reads import AttemptView
from jobqueue.types import FLEET
from jobsplatform.errors import NotFound
from jobsplatform.wording import one_line

SHOWN_MAX: Final = 50  # newest attempts that can be compared
LINE_CHARS: Final = 80  # of a message in a choice


def compared(job_id: int, asked: Mapping[str, str]) -> dict[str, Any] | None:
    """Two attempts side by side: those that `asked` names by generation (`old`, `new`), else the newest two that said
    something. None: there are no two.
    """
    said = _that_said_something(job_id)
    if len(said) < 2:
        return None
    new = _chosen(said, asked.get("new", ""), said[0])
    older = [one for one in said if one.generation < new.generation] or list(said)
    old = _chosen(said, asked.get("old", ""), older[0])
    return {
        "attempts": [(one.generation, _title(one)) for one in said],
        "old": old,
        "new": new,
        "lines": differing.diff_texts(old.message or "", new.message or ""),
    }


def _that_said_something(job_id: int) -> Sequence[AttemptView]:
    try:
        found, _ = reads.attempts(job_id, scope=FLEET, before=None, limit=SHOWN_MAX)
    except NotFound:
        return []
    return [one for one in found if one.message]


def _chosen(said: Sequence[AttemptView], asked: str, default: AttemptView) -> AttemptView:
    return next((one for one in said if str(one.generation) == asked), default)


def _title(one: AttemptView) -> str:
    last = one_line((one.message or "").rstrip().rsplit("\n", 1)[-1])
    return f"generation {one.generation}, {one.outcome or 'running'}: {last[:LINE_CHARS]}"
