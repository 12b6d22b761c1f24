"""Many callers of one core in virtual time: no threads, no sleeping, no sockets."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from jobsplatform_client import Retry
from jobsplatform_client.core import Core
from jobsplatform_client.exchange import Answer, Conversation, Pause, Reply, Request, encode

TRAVEL_S = 0.01  # of one call

Serve = Callable[[float, Request], Answer]


class World:
    """A clock, a platform (`serve`, asked with the time) and the callers that talk to it."""

    def __init__(self, serve: Serve, *, retry: Retry | None = None, seed: int = 0) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Request]] = []
        self.values: list[Any] = []
        self.errors: list[Exception] = []
        self._serve = serve
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Conversation[Any], Answer | None]] = []
        self.core = Core(retry or Retry(), clock=lambda: self.now, chance=self._chance.uniform)

    def begin(self, talk: Conversation[Any], at: float = 0.0) -> None:
        self._plan(at, talk, None)

    def run(self) -> World:
        while self._events:
            self.now, _, talk, answer = heapq.heappop(self._events)
            try:
                step = talk.send(answer)
            except StopIteration as end:
                self.values.append(end.value)
            except Exception as error:
                self.errors.append(error)
            else:
                self._do(talk, step)
        return self

    def _do(self, talk: Conversation[Any], step: Any) -> None:
        if isinstance(step, Pause):
            self._plan(self.now + step.seconds, talk, None)
            return
        self.calls.append((self.now, step.request))
        self._plan(self.now + TRAVEL_S, talk, self._serve(self.now, step.request))

    def _plan(self, at: float, talk: Conversation[Any], answer: Answer | None) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), talk, answer))


def accepted(request: Request) -> Reply:
    return Reply(201, encode({"job_id": "0-1", "replayed": False}))


def problem(status: int, code: str, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, encode({"code": code, "status": status, "detail": code}), names)
