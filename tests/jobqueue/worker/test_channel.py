"""Frames between keeper and executor."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from jobqueue.worker.board import RUNNING, Board, shared_file
from jobqueue.worker.channel import (
    Channel,
    Closed,
    Held,
    Note,
    Word,
    pack_held,
    pack_notes,
    unpack_held,
    unpack_notes,
)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), Channel(theirs)


def test_frames_arrive_whole_and_in_order(pair: tuple[Channel, Channel]) -> None:
    here, there = pair
    held = [Held(n, n << 48 | 5, n + 1, bytes([n]) * 16, 1.5, 30.0) for n in range(50)]
    here.send(Word.HELD, pack_held(12.25, held))
    here.send(Word.LEAVING)
    [(word, body), (last, empty)] = list(there.receive())
    assert (word, last, empty) == (Word.HELD, Word.LEAVING, b"")
    assert unpack_held(body) == (12.25, held)


def test_a_frame_too_large_for_the_socket_goes_while_the_other_side_reads(
    pair: tuple[Channel, Channel],
) -> None:
    here, there = pair
    notes = [Note(n, n, n) for n in range(100_000)]
    sender = threading.Thread(target=here.send, args=(Word.LOST, pack_notes(notes)))
    sender.start()
    frames: list[tuple[Word, bytes]] = []
    while not frames:
        frames += there.receive()
    sender.join()
    assert unpack_notes(frames[0][1]) == notes


def test_posting_never_waits_for_a_side_that_does_not_read(pair: tuple[Channel, Channel]) -> None:
    here, there = pair
    for _ in range(1_000):
        here.post(Word.LOST, b"x" * 1_000)
    received = 0
    while received < 1_000:
        received += len(list(there.receive()))
        here.flush()


def test_the_end_is_told_after_the_last_frame(pair: tuple[Channel, Channel]) -> None:
    here, there = pair
    here.send(Word.LEAVING)
    here.close()
    frames = there.receive()
    assert next(frames) == (Word.LEAVING, b"")
    with pytest.raises(Closed):
        next(frames)
    with pytest.raises(Closed):
        there.post(Word.DRAIN, b"x")


def test_both_sides_of_a_board_see_the_same() -> None:
    with shared_file() as memory:
        one, other = Board(memory.fileno()), Board(os.dup(memory.fileno()))
        assert not other.running()
        one.states[2_047] = RUNNING
        one.stamp_turn(12.5)
        one.stamp_poll(13.5)
        assert other.running()
        assert (other.turned_at, other.polled_at, other.states[2_047]) == (12.5, 13.5, RUNNING)
        one.close()
        other.close()
