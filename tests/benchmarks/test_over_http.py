"""The pure halves of the measurement over HTTP, and its client against a server of a few lines."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from benchmarks import over_http
from benchmarks.over_http import Crowd, Life, Line

ROW = {"rate": 9_000.0, "enqueue_p99": 5.0, "claim_p99": 20.0, "end_p99": 20.1}


@pytest.fixture
def server():
    """Answers what `answers` says, in as many pieces as that has."""
    answers: list[list[bytes]] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                while answers and line.recv(65_536):
                    for piece in answers.pop(0):
                        line.sendall(piece)
                        time.sleep(0.01)

        thread = threading.Thread(target=serve)
        yield listener.getsockname()[1], answers, thread
        thread.join(10)


def test_an_answer_is_read_whole_though_it_comes_in_pieces(server):
    port, answers, thread = server
    answers[:] = [
        [b"HTTP/1.1 200 OK\r\nContent-", b"Length: 6\r\n\r\nab", b"cd", b"ef"],
        [b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"],
    ]
    thread.start()
    line = Line(port, "t")
    with line.socket:
        assert line.post("/a", b"{}") == b"abcdef"
        assert line.post("/a", b"{}") == b"{}"


def test_a_refusal_ends_the_measurement(server):
    port, answers, thread = server
    answers[:] = [[b"HTTP/1.1 503 Unavailable\r\nContent-Length: 2\r\n\r\n{}"]]
    thread.start()
    line = Line(port, "t")
    with line.socket, pytest.raises(RuntimeError, match="503"):
        line.post("/a", b"{}")


class Slow(Life):
    """Each call takes a while."""

    def calls(self, line):
        return [lambda: time.sleep(0.05)] * 3


class NoLine:
    def __init__(self, port, token):
        pass


def test_a_call_that_could_not_be_sent_in_time_counts_from_when_it_was_due(monkeypatch):
    monkeypatch.setattr(over_http, "Line", NoLine)
    monkeypatch.setattr(over_http, "SENDERS", 1)
    found = over_http.by_schedule(Crowd(0, ""), Slow(1), rate=20.0, seconds=0.2)
    assert [len(waits) for waits in found.values()] == [4, 4, 4]
    enqueues = found["enqueue"]  # 50 ms apart are wanted, 150 ms are needed
    assert enqueues == sorted(enqueues)
    assert enqueues[-1] > 300


def test_lives_that_fit_are_as_long_as_their_calls(monkeypatch):
    monkeypatch.setattr(over_http, "Line", NoLine)
    monkeypatch.setattr(over_http, "GAP_S", 0.06)
    found = over_http.by_schedule(Crowd(0, ""), Slow(1), rate=20.0, seconds=0.2)
    assert max(map(max, found.values())) < 150


def test_the_first_failure_of_a_client_is_the_measurements(monkeypatch):
    monkeypatch.setattr(over_http, "Line", NoLine)

    def fail(line):
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        Crowd(0, "").run(3, fail)


def test_rates_and_latencies_are_judged_each_for_itself():
    found = {one.claim: one.is_kept for one in over_http.judged({"100 jobs a call": ROW})}
    assert found == {
        "100 jobs a call: jobs/s": True,
        "100 jobs a call: enqueue p99 ms at half load": True,
        "100 jobs a call: claim p99 ms at half load": True,
        "100 jobs a call: end p99 ms at half load": False,
    }


def test_a_size_that_was_not_measured_is_not_judged():
    assert over_http.judged({"7 jobs a call": ROW}) == []
