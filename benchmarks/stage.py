"""A platform of one's own for a measurement: a server in a temporary folder, a tenant, a queue, a token, processes.

Everything is on loopback and gone at the end. Numbers of different runs do not compare.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobsplatform.embedded import Server

ROOT: Final = Path(__file__).resolve().parent.parent
QUEUE: Final = "bench"
START_SECONDS_MAX: Final = 60.0


class Stage:
    """What a measurement stands on. `environment` is for child processes."""

    def __init__(self, stack: ExitStack, server: Server, environment: dict[str, str], token: str) -> None:
        self._stack, self.server, self.environment, self.token = stack, server, environment, token
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(command, cwd=ROOT, env=self.environment, pass_fds=descriptors)
        self.children.append(child)
        self._stack.callback(_end, child)
        return child

    def manage(self, *arguments: str) -> subprocess.Popen[bytes]:
        return self.start([sys.executable, str(ROOT / "manage.py"), *arguments])

    def web(self, processes: int = 1, **settings: int) -> int:
        """Start gunicorn with these JOBS_… settings; its port."""
        listener = self._stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(2_048)
        self.environment |= {name: str(value) for name, value in settings.items()}
        self.environment["JOBS_WEB_PROCESSES"] = str(processes)
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "-c",
            "gunicorn.conf.py",
            "--bind",
            f"fd://{listener.fileno()}",
        ]
        self.start(command, [listener.fileno()])
        port: int = listener.getsockname()[1]
        _wait_until_ready(port)
        return port


@contextmanager
def stage() -> Iterator[Stage]:
    """Set it up; Django is configured for its databases from here on."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobs-bench-")))
        sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
        for name in [name for name in os.environ if name.startswith(("JOBSPLATFORM_", "JOBS_"))]:
            if name != "JOBSPLATFORM_PG_BIN":
                del os.environ[name]
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "jobsplatform.settings",
            "JOBSPLATFORM_DATA": str(folder),
            "JOBSPLATFORM_LOG_LEVEL": "WARNING",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'queue'}",
        }
        from jobsplatform.embedded import Server

        server = Server(folder)
        server.ensure_running()
        stack.callback(server.stop)
        yield Stage(stack, server, dict(os.environ), _populate())


def _populate() -> str:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    from jobqueue import policies
    from tenants import access, registry

    tenant = registry.create_tenant("bench", actor="bench")
    policies.create_queue(QUEUE, actor="bench")
    _, token = access.create_token(tenant=tenant, scopes=["produce", "work", "read"], actor="bench")
    return token


def rss_mib(pid: int) -> float:
    """Resident memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def share(values: Sequence[float], part: float) -> float:
    """The quantile `part` of some values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(40)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _wait_until_ready(port: int) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end:
        connection = HTTPConnection("127.0.0.1", port, timeout=START_SECONDS_MAX)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise RuntimeError("The web server did not become ready.")
