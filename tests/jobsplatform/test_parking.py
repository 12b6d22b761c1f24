"""Answers that one thread sends together: each stands alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobsplatform import parking

STAYS = {"first": True, "fails": False, "gone": False, "last": True}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker without a server: what it sends and hands back is written down."""
    made: Any = object.__new__(parking.Worker)
    made.sent, made.finished, made.submitted = [], [], []
    made.method_queue = SimpleNamespace(defer=lambda call, finished: made.finished.extend(finished))
    made.tpool = SimpleNamespace(submit=lambda call, *rest: made.submitted.append((call, rest)))

    def answer(conn: str, place: Any) -> tuple[bytes, bool]:
        if conn == "fails":
            raise KeyError(conn)
        return (b"", False) if conn == "gone" else (place, True)

    def sent(conn: str, place: Any, content: bytes) -> bool:
        made.sent.append(conn)
        return True

    monkeypatch.setattr(made, "_answer", answer)
    monkeypatch.setattr(made, "_sent", sent)
    return made


def test_an_answer_that_fails_costs_the_others_nothing(worker: Any) -> None:
    worker._send_answers([(name, b"{}") for name in STAYS])
    assert worker.sent == ["first", "last"]
    assert dict(worker.finished) == STAYS


def test_a_large_answer_is_left_to_a_thread_of_its_own(worker: Any) -> None:
    large = b"x" * (parking.AT_ONCE_BYTES + 1)
    worker._send_answers([("large", large), ("last", b"{}")])
    assert worker.finished == [("last", True)]
    [(call, rest)] = worker.submitted
    call(*rest)
    assert worker.finished == [("last", True), ("large", True)]


def test_a_large_answer_that_fails_gives_its_connection_back(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> bool:
        raise KeyError

    monkeypatch.setattr(worker, "_sent", fail)
    worker._send_large("large", b"", b"x", True)
    assert worker.finished == [("large", False)]
