"""One exchange, with receivers that drip, flood, stall and cut."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from jobqueue.posting import exchange
from jobqueue.posting.exchange import ANSWER_BYTES_MAX, Answer, NoAnswer, NotSent
from jobqueue.posting.target import Target
from tests.jobqueue.posting.conftest import Receiver, Talk, read_request

LONG_S = 30  # no test waits for it


def post(receiver: Receiver, timeout_s: float = LONG_S, body: bytes = b"{}") -> Answer:
    target = Target("http", "hooks.example.org", receiver.port, "/in?x=1")
    return exchange.post(target, ["127.0.0.1"], body, {"Idempotency-Key": "0-1"}, timeout_s=timeout_s)


def test_the_request_names_the_host_and_goes_to_the_address_that_was_judged(receiver: Receiver) -> None:
    receiver.answers(200, body=b'{"ok":true}')
    answer = post(receiver, body=b'{"a":1}')
    assert (answer.status, answer.body, answer.is_cut) == (200, b'{"ok":true}', False)
    head, _, body = receiver.heard[0].partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /in?x=1 HTTP/1.1"
    assert f"Host: hooks.example.org:{receiver.port}".encode() in head.splitlines()
    assert b"Idempotency-Key: 0-1" in head.splitlines()
    assert body == b'{"a":1}'


def test_the_second_address_is_tried_when_the_first_is_dead(receiver: Receiver) -> None:
    receiver.answers(204, body=b"")
    target = Target("http", "hooks.example.org", receiver.port, "/")
    answer = exchange.post(target, ["127.0.0.9", "127.0.0.1"], b"{}", {}, timeout_s=LONG_S)
    assert answer.status == 204


def test_of_ten_gigabytes_the_first_kilobytes_are_read(receiver: Receiver) -> None:
    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65_536)

    receiver.talk = flood
    answer = post(receiver)
    assert (len(answer.body), answer.is_cut) == (ANSWER_BYTES_MAX, True)


def test_a_chunked_flood_is_cut_too(receiver: Receiver) -> None:
    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1000\r\n" + b"x" * 4_096 + b"\r\n")

    receiver.talk = flood
    assert post(receiver).is_cut


@pytest.mark.parametrize("size", ["-1", "-0x1", "-ffffffff"])
def test_a_chunk_of_less_than_nothing_is_no_way_around_the_bound(receiver: Receiver, size: str) -> None:
    sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n".encode())
        while sent < 100_000_000:
            sent += connection.send(b"x" * 65_536)

    receiver.talk = flood
    answer = post(receiver)
    assert answer.is_cut
    assert len(answer.body) <= ANSWER_BYTES_MAX
    assert sent < 50_000_000  # what the sockets hold


@pytest.mark.parametrize("body", [b"", b"x", b"x" * ANSWER_BYTES_MAX, b"x" * (ANSWER_BYTES_MAX + 1)])
@pytest.mark.parametrize("framing", ["length", "chunked", "end"])
def test_a_body_is_cut_only_beyond_the_bound(receiver: Receiver, body: bytes, framing: str) -> None:
    heads = {"length": f"Content-Length: {len(body)}", "chunked": "Transfer-Encoding: chunked", "end": "X: y"}
    pieces = [body[at : at + 5_000] for at in range(0, len(body), 5_000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"
    said = f"HTTP/1.1 200 OK\r\n{heads[framing]}\r\n\r\n".encode()
    receiver.talk = lambda connection: connection.sendall(said + (chunks if framing == "chunked" else body))
    answer = post(receiver)
    assert (answer.body, answer.is_cut) == (body[:ANSWER_BYTES_MAX], len(body) > ANSWER_BYTES_MAX)


def test_what_goes_before_the_answer_is_not_the_answer(receiver: Receiver) -> None:
    hints = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    receiver.talk = lambda connection: connection.sendall(
        hints + b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"
    )
    answer = post(receiver)
    assert (answer.status, answer.body, "link" in answer.headers) == (404, b"no", False)


def test_an_address_that_swallows_everything_leaves_time_for_the_next(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.create_connection

    def swallow(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == "127.0.0.9":
            time.sleep(timeout)
            raise TimeoutError
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", swallow)
    receiver.answers(204, body=b"")
    target = Target("http", "hooks.example.org", receiver.port, "/")
    answer = exchange.post(target, ["127.0.0.9", "127.0.0.1"], b"{}", {}, timeout_s=1)
    assert answer.status == 204


def test_a_connection_made_after_the_end_sends_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the time finds no socket to cut, so nothing else would end what follows."""
    connect = socket.create_connection

    def late(address: tuple[str, int], timeout: float) -> socket.socket:
        time.sleep(0.2)
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", late)
    with pytest.raises(NotSent):
        post(receiver, timeout_s=0.1)


def _drips_after(start: bytes) -> Talk:
    """Says `start`, then a byte every tenth of a second for a minute."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(600):
            connection.sendall(b"H")
            time.sleep(0.1)

    return talk


def test_a_receiver_that_drips_its_status_is_left_at_the_end_of_the_time(receiver: Receiver) -> None:
    receiver.talk = _drips_after(b"")
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        post(receiver, timeout_s=0.5)
    assert time.monotonic() - began < LONG_S


@pytest.mark.parametrize("start", [b"X-Slow: ", b"Content-Length: 600\r\n\r\n", b"\r\n"])
def test_a_receiver_that_drips_after_its_status_has_spoken(receiver: Receiver, start: bytes) -> None:
    receiver.talk = _drips_after(b"HTTP/1.1 200 OK\r\n" + start)
    began = time.monotonic()
    answer = post(receiver, timeout_s=0.5)
    assert answer.status == 200
    assert time.monotonic() - began < LONG_S


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 10\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_a_body_that_breaks_off_is_cut(receiver: Receiver, rest: bytes) -> None:
    receiver.talk = lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + rest)
    answer = post(receiver)
    assert (answer.status, answer.is_cut) == (200, True)


def test_a_receiver_that_says_nothing_leaves_the_outcome_open(receiver: Receiver) -> None:
    receiver.talk = lambda connection: time.sleep(5)
    with pytest.raises(NoAnswer):
        post(receiver, timeout_s=0.3)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 99999 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_an_answer_that_is_none_leaves_the_outcome_open(receiver: Receiver, said: bytes) -> None:
    receiver.talk = lambda connection: connection.sendall(said)
    with pytest.raises(NoAnswer):
        post(receiver)


def test_a_port_that_nobody_listens_on_was_sent_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotSent):
        post(Receiver(port))


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of hooks.example.org, signed by itself, with its key."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout - -out - -subj /CN=hooks.example.org"
    command = ["openssl", *words.split(), "-addext", "subjectAltName=DNS:hooks.example.org"]
    made = subprocess.run(command, capture_output=True, check=True)
    file.write_bytes(made.stdout)
    return file


def _tls_server(certificate: Path) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)


def _answer_once(server: socket.socket) -> None:
    with suppress(OSError):
        connection, _ = server.accept()
        with connection:
            read_request(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    ("host", "trusts", "expected"),
    [
        ("hooks.example.org", True, 200),
        ("hooks.example.org", False, NotSent),
        ("other.example.org", True, NotSent),
    ],
)
def test_tls_proves_the_name_though_the_connection_goes_to_an_address(
    certificate: Path, host: str, trusts: bool, expected: object
) -> None:
    trust = ssl.create_default_context(cafile=str(certificate) if trusts else None)
    with _tls_server(certificate) as server:
        threading.Thread(target=_answer_once, args=(server,), daemon=True).start()
        target = Target("https", host, server.getsockname()[1], "/")

        def call() -> Answer:
            return exchange.post(target, ["127.0.0.1"], b"{}", {}, timeout_s=LONG_S, tls=trust)

        if expected == 200:
            assert call().status == 200
        else:
            with pytest.raises(NotSent):
                call()


def test_a_handshake_that_drips_is_left_at_the_end_of_the_time() -> None:
    """The first bytes of a TLS record that would be 16 KiB long, one by one."""

    def meet(server: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                _drips_after(b"\x16\x03\x03\x40\x00")(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=meet, args=(server,), daemon=True).start()
        target = Target("https", "hooks.example.org", server.getsockname()[1], "/")
        began = time.monotonic()
        with pytest.raises(NotSent):
            exchange.post(target, ["127.0.0.1"], b"{}", {}, timeout_s=0.5)
        assert time.monotonic() - began < LONG_S
