"""Requests that wait without a thread.

A view answers `Parked` where it would have to wait. Our gunicorn worker then keeps the connection in its poller, lets
the thread go, and sends the answer from any thread once it is there. So two thousand parked requests cost their
sockets and their small state, and no thread (ADR 0013). Under any other server the view waits in its thread.

A client that goes away while it is parked is noticed at once, and what was meant for it is undone.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from django.http import HttpRequest, HttpResponse
from gunicorn.http import wsgi
from gunicorn.workers.gthread import TConn, ThreadWorker

TOGETHER_MAX: Final = 16  # answers that one thread sends, one after the other
AT_ONCE_BYTES: Final = 16_384  # what a socket takes though its client does not read
MARK: Final = "jobsplatform.parks"  # in the environment of a request whose server can park
_OWN_HEADERS: Final = frozenset(
    {"content-length", "content-type"}
)  # of the answer, not of the parked response

StartResponse = Callable[..., Any]


class Waiting(Protocol):
    """What a request waits for."""

    def wait(self) -> None:
        """Sleep until it is there."""

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Call back once it is there, in any thread; at once if it is."""


def can_park(request: HttpRequest) -> bool:
    return bool(request.META.get(MARK))


class Parked(HttpResponse):
    """Stands for an answer to come; collects the headers that middleware gives to every answer."""

    def __init__(
        self, waiting: Waiting, answer: Callable[[], HttpResponse], undo: Callable[[], None]
    ) -> None:
        super().__init__()
        self.waiting, self.undo, self._answer = waiting, undo, answer

    def answer(self) -> HttpResponse:
        """The answer itself, with those headers."""
        response = self._answer()
        for name, value in self.headers.items():
            if name.lower() not in _OWN_HEADERS:
                response.headers.setdefault(name, value)
        response.headers["Content-Length"] = str(len(response.content))
        return response


class _Leaves(Exception):
    """Carries a parked response past gunicorn's sending."""

    def __init__(self, response: Parked) -> None:
        super().__init__()
        self.response = response


class _Place:
    """A parked request on its connection."""

    def __init__(self, request: Any, response: Parked) -> None:
        self.request, self.response = request, response
        self.is_watched = False


class _Sent:
    """Takes what gunicorn would send."""

    def __init__(self) -> None:
        self.content = bytearray()

    def sendall(self, data: bytes) -> None:
        self.content += data


class Worker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threads, with room for requests that wait."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settled: deque[tuple[TConn, _Place]] = deque()
        self._is_told = False  # the main thread will look at them

    def load_wsgi(self) -> None:
        super().load_wsgi()
        self.wsgi: Callable[..., Iterable[bytes]] = _parking(self.wsgi)

    # In a thread

    def handle_request(self, req: Any, conn: TConn) -> Any:
        try:
            return super().handle_request(req, conn)
        except _Leaves as leaves:
            conn.place = _Place(req, leaves.response)
            return True

    def _send_answers(self, settled: list[tuple[TConn, _Place]]) -> None:
        """Answer these, and hand their connections back. One that fails is closed, and costs the others nothing."""
        finished = []
        for conn, place in settled:
            stays: bool | None = False
            with suppress(Exception):
                stays = self._send_answer(conn, place)
            if stays is not None:
                finished.append((conn, stays))
        self.method_queue.defer(self._finish_answers, finished)

    def _send_answer(self, conn: TConn, place: _Place) -> bool | None:
        """Whether the connection may serve another request. None: its client must read before all is sent, which is
        left to a thread of its own.
        """
        content, stays = self._answer(conn, place)
        if len(content) > AT_ONCE_BYTES:
            self.tpool.submit(self._send_large, conn, place, content, stays)
            return None
        return bool(content) and self._sent(conn, place, content) and stays

    def _send_large(self, conn: TConn, place: _Place, content: bytes, stays: bool) -> None:
        is_sent = False
        with suppress(Exception):
            is_sent = self._sent(conn, place, content)
        self.method_queue.defer(self._finish_answers, [(conn, is_sent and stays)])

    def _answer(self, conn: TConn, place: _Place) -> tuple[bytes, bool]:
        """Head and body, as one packet; and whether the connection may serve another request. Nothing for a client that
        went away."""
        if _is_gone(conn.sock):
            place.response.undo()
            return b"", False
        answer = place.response.answer()
        sent = _Sent()
        reply = wsgi.Response(place.request, sent, self.cfg)
        if not self.alive or not self.cfg.keepalive:
            reply.force_close()
        reply.start_response(f"{answer.status_code} {answer.reason_phrase}", list(answer.items()))
        reply.write(answer.content)
        reply.close()
        return bytes(sent.content), bool(self._keepalive_after(conn, not reply.should_close()))

    def _sent(self, conn: TConn, place: _Place, content: bytes) -> bool:
        try:
            conn.sock.setblocking(True)
            conn.sock.sendall(content)
            return True
        except OSError:
            place.response.undo()
            return False

    # In the main thread

    def finish_request(self, conn: TConn, fs: Any) -> None:
        place: _Place | None = conn.__dict__.pop("place", None)
        failed = fs.cancelled() or fs.exception() is not None
        if place is None or failed:
            if not self.alive and not failed and not fs.result():
                self.nr_conns -= 1  # gunicorn lingers here for the client's close: polls would wait behind it
                self.tpool.submit(conn.close, graceful=True)
            else:
                super().finish_request(conn, fs)
            return
        conn.sock.setblocking(False)
        self.poller.register(conn.sock, selectors.EVENT_READ, lambda sock: self._on_readable(conn, place))
        place.is_watched = True
        place.response.waiting.on_settled(partial(self._note_settled, conn, place))

    def _on_readable(self, conn: TConn, place: _Place) -> None:
        """The client has gone, or has sent its next request ahead: that one waits its turn."""
        self._unwatch(conn, place)
        if _is_gone(conn.sock):
            self.tpool.submit(place.response.undo)  # it may talk to the database
            self.nr_conns -= 1
            conn.close()

    def _note_settled(self, conn: TConn, place: _Place) -> None:
        """In any thread. Many that are settled together wake the main thread once."""
        self._settled.append((conn, place))
        if not self._is_told:
            self._is_told = True
            self.method_queue.defer(self._resume)

    def _resume(self) -> None:
        self._is_told = False
        ready = []
        while self._settled:
            conn, place = self._settled.popleft()
            if conn.sock.fileno() >= 0:  # else the client went first
                self._unwatch(conn, place)
                ready.append((conn, place))
        size = min(TOGETHER_MAX, -(-len(ready) // self.cfg.threads))
        for first in range(0, len(ready), size or 1):
            self.tpool.submit(self._send_answers, ready[first : first + size])

    def _finish_answers(self, finished: list[tuple[TConn, bool]]) -> None:
        """As after any request. But the whole request has been read, so there is nothing to linger for at a close:
        gunicorn's lingering, up to 2 s each in this thread, would hold up the others when all end at once."""
        for conn, stays in finished:
            if stays:
                done: Future[bool] = Future()
                done.set_result(True)
                super().finish_request(conn, done)
            else:
                self.nr_conns -= 1
                conn.close()

    def _unwatch(self, conn: TConn, place: _Place) -> None:
        if place.is_watched:
            place.is_watched = False
            with suppress(OSError, KeyError, ValueError):
                self.poller.unregister(conn.sock)


def _parking(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """The application, told that it may park; what it parks leaves gunicorn's way."""

    def run(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        environ[MARK] = environ.get("HTTP_VERSION") != "2"
        response = application(environ, start_response)
        if isinstance(response, Parked):
            response.close()  # the request's end, to Django: its connections go back to their pools
            raise _Leaves(response)
        return response

    return run


def _is_gone(sock: socket.socket) -> bool:
    """Whether the client has closed its side."""
    try:
        sock.setblocking(False)
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True
