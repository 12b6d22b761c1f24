"""The text of a notification: who says it, and in which bands something has become ready."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from jobqueue.wakeup import Mark

NOTE_CHARS_MAX: Final = 7_900  # the server takes fewer than 8,000 bytes
_MARK = re.compile(r"(\d{1,18}):(\d{1,4})", re.ASCII)


def write(sender: str, marks: Iterable[Mark]) -> Iterator[str]:
    """As many texts as it takes, most urgent first."""
    text = sender
    for mark in sorted(marks, key=lambda one: (one.priority, one.queue_id)):
        word = f" {mark.queue_id}:{mark.priority}"
        if len(text) + len(word) > NOTE_CHARS_MAX:
            yield text
            text = sender
        text += word
    if text != sender:
        yield text


def read(text: str) -> tuple[str, frozenset[Mark]]:
    """Sender and bands; what is not understood is left out: anybody may notify."""
    sender, _, words = text.partition(" ")
    found = (_MARK.fullmatch(word) for word in words.split())
    return sender, frozenset(Mark(int(match[1]), int(match[2])) for match in found if match)
