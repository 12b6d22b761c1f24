"""The shards: which there are, whether they answer, how old their backlog is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from jobqueue.models import IdSpace
from jobsplatform import asking, database, frame, sql
from jobsplatform.frame import Fragment

MAY_LOOK: Final = "queue.view_queue"
COUNT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class ShardLine:
    """A shard now; all but its number and spaces None: it does not answer."""

    number: int
    spaces: list[int]
    version: str | None = None
    is_writable: bool | None = None
    off_s: float | None = None
    backlog_s: float | None = None
    ready: str | None = None
    running: str | None = None
    dead: str | None = None

    @property
    def state(self) -> str:
        if self.version is None:
            return "unknown"
        return "active" if self.is_writable else "read only"


@frame.screen("shards/", name="shards", title="Shards", permission=MAY_LOOK, order=70)
def shards_page(request: HttpRequest) -> HttpResponse:
    fragments = {"shards": Fragment("admin/shards/list.html", _lines)}
    return frame.live_page(request, "admin/shards/shards.html", fragments, {}, title="Shards")


def _lines() -> Mapping[str, Any]:
    spaces: dict[int, list[int]] = {}
    for space, shard in IdSpace.objects.order_by("space").values_list("space", "shard"):
        spaces.setdefault(shard, []).append(space)
    answers = asking.all_shards(_read)
    lines = []
    for number in database.aliases():
        answer = answers[number]
        known = {} if answer is None else answer
        lines.append(ShardLine(number, spaces.get(number, []), **known))
    return {"lines": lines}


def _read(alias: str) -> dict[str, Any]:
    ((version, is_writable, at_off, backlog_s, ready, running, dead),) = sql.rows(
        "jobqueue/overview_shard", {"bound": COUNT_MAX + 1, "now": None}, alias=alias
    )
    return {
        "version": version,
        "is_writable": is_writable,
        "off_s": at_off,
        "backlog_s": backlog_s,
        "ready": _counted(ready),
        "running": _counted(running),
        "dead": _counted(dead),
    }


def _counted(count: int) -> str:
    return f"{COUNT_MAX:,}+" if count > COUNT_MAX else f"{count:,}"
