"""PgBouncer in transaction mode in front of a server, for tests (S120)."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

_CONFIGURATION = """\
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 400
server_idle_timeout = 1
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def transaction_pooler(url: str) -> Iterator[int]:
    """Run it in front of the server of `url`; the port that it listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    place = urlsplit(url)
    values = {"host": place.hostname, "port": place.port, "user": place.username, "password": place.password}
    with TemporaryDirectory(prefix="jobs-pooler-") as folder:
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(_CONFIGURATION.format(**values, listen_port=port))
        command = ["pgbouncer", "-q", str(file)]
        if os.getuid() == 0:  # it refuses to run as root
            Path(folder).chmod(0o755)
            command[1:1] = ["-u", "nobody"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            _wait_until_open(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        assert process.poll() is None, "pgbouncer ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("pgbouncer does not listen")
