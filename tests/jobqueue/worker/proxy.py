"""A TCP proxy that a test can make slow, silent or absent, between a worker and its database."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

CHUNK = 65_536


class Proxy:
    """Listens on loopback and forwards to `target`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.delay_s = 0.0  # added to each reply of the database
        self._silent: set[socket.socket] = set()
        self.is_absent = False  # new connections are closed at once
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def silence(self) -> None:
        """No open connection ever says another word; new ones work."""
        self._silent.update(self._open)

    def cut(self) -> None:
        """Reset every open connection."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_absent:
                client.close()
                continue
            server = socket.create_connection(self._target)
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with source, contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if is_reply and self.delay_s:
                    time.sleep(self.delay_s)
                if source in self._silent:
                    continue
                target.sendall(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
