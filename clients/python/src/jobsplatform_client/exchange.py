"""Requests, answers, and conversations: what is said to the platform, without saying how bytes travel.

A *conversation* is a generator that yields what to do next, `Send` or `Pause`, is sent the answer of each, and
returns the call's value or raises its error. The two clients differ in how they do these two things, and in
nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeVar

from jobsplatform_client import errors

T = TypeVar("T")


def encode(value: object) -> bytes:
    """JSON as the platform takes it. Raises ValueError or TypeError for what JSON cannot hold."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Request:
    """One call. The body is bytes from here on, so that each repeat says exactly the same."""

    method: str
    path: str
    body: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0  # how much longer than usual an answer may take: a long poll's


class Members(dict[str, Any]):
    """A reply's members. One that should be there and is not: whoever answered is not the platform."""

    def __missing__(self, name: str) -> NoReturn:
        raise errors.NotUnderstood(f"an answer without {name!r}")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the platform answered. Header names in lower case."""

    status: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def retry_after_s(self) -> float | None:
        """Of the header, where it is a number of seconds."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdigit() else None

    def members(self) -> Members:
        """The JSON object of the body. Raises NotUnderstood."""
        try:
            found = json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise errors.NotUnderstood(f"status {self.status} with a body that is no JSON") from error
        if not isinstance(found, dict):
            raise errors.NotUnderstood(f"status {self.status} with a body that is no object")
        return Members(found)

    def error(self) -> errors.JobsPlatformError | None:
        """The refusal that it is; None for a success."""
        if 200 <= self.status < 300:
            return None
        if self.status < 400:
            return errors.NotUnderstood(f"status {self.status}: the platform never redirects")
        try:
            problem = self.members()
        except errors.NotUnderstood:
            problem = Members()  # of a proxy, perhaps: the status speaks
        return errors.refusal(self.status, problem, self.retry_after_s)


@dataclass(frozen=True, slots=True)
class NoReply:
    """No answer came. `was_sent` False: certainly nothing reached the platform."""

    was_sent: bool
    reason: str


Answer = Reply | NoReply


class Send(NamedTuple):
    """Send this and give back its `Answer`."""

    request: Request


class Pause(NamedTuple):
    """Do nothing for so long."""

    seconds: float


Conversation = Generator[Send | Pause, Answer | None, T]
