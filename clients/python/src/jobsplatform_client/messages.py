"""The messages face as conversations: send, receive, and what becomes of receipts."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from jobsplatform_client import errors
from jobsplatform_client.core import Core
from jobsplatform_client.exchange import Conversation
from jobsplatform_client.values import Message, Rejected, Sent, Settled, given, new_key, written

Receipts = Iterable[Message | str]


def receipt_of(one: Message | str) -> str:
    return one if isinstance(one, str) else one.receipt


class MessagesCore:
    """One queue's conversations."""

    def __init__(self, core: Core, queue: str) -> None:
        self._core = core
        self._path = f"/v1/queues/{quote(queue, safe='')}"

    def send(
        self,
        body: bytes | str,
        *,
        priority: int | str | None = None,
        deliver_at: datetime | None = None,
        delay_s: int | None = None,
        dedup_key: str | None = None,
        expires_in_s: int | None = None,
    ) -> Conversation[Sent]:
        key = dedup_key or new_key()
        data = body.encode() if isinstance(body, str) else body
        options = {
            "priority": priority,
            "deliver_at": written(deliver_at),
            "delay_s": delay_s,
            "expires_in_s": expires_in_s,
        }
        members = {"body": base64.b64encode(data).decode(), "dedup_key": key, **given(options)}
        try:
            done = yield from self._core.post(f"{self._path}/messages", members)
        except errors.JobsPlatformError as error:
            error.request_key = key
            raise
        return Sent(done["id"], key, done["replayed"], done.get("same_content", True))

    def receive(
        self, *, limit: int, wait_s: int, lease_s: int | None, max_priority: int | None
    ) -> Conversation[list[Message]]:
        """A receive whose answer was lost leaves its messages leased until they lapse: they come again."""
        members = {
            "max": limit,
            "wait_s": wait_s,
            **given({"lease_s": lease_s, "max_priority": max_priority}),
        }
        done = yield from self._core.post(f"{self._path}/receive", members)
        return [Message.of(one) for one in done["messages"]]

    def settle(
        self,
        *,
        ack: Receipts = (),
        extend: Iterable[tuple[Message | str, int | None]] = (),
        release: Receipts = (),
        fail: Iterable[tuple[Message | str, str]] = (),
    ) -> Conversation[Settled]:
        members = {
            "ack": [receipt_of(one) for one in ack],
            "extend": [{"receipt": receipt_of(one), **given({"lease_s": s})} for one, s in extend],
            "release": [receipt_of(one) for one in release],
            "fail": [{"receipt": receipt_of(one), "message": message} for one, message in fail],
        }
        named = {name: items for name, items in members.items() if items}
        if not named:
            return Settled()
        tries = self._core.tries()
        done = yield from self._core.post(f"{self._path}/ack", named, tries)
        return _settled(done, may_be_repeat=tries.is_outcome_unknown)

    def stats(self) -> Conversation[dict[str, Any]]:
        return (yield from self._core.get(f"{self._path}/stats"))


def _settled(done: Mapping[str, Any], *, may_be_repeat: bool) -> Settled:
    extended = {one["receipt"]: datetime.fromisoformat(one["expires_at"]) for one in done["extend"]}
    rejected = [Rejected(one["receipt"], one["code"]) for one in done["rejected"]]
    return Settled(done["ack"], extended, done["release"], done["fail"], rejected, may_be_repeat)
