"""What the tests of upgrades and failover stand on: processes of a checkout on given databases, and a load that counts
what was acknowledged."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 90


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Checkout:
    """A version of the code, and its processes on the databases that `environment` names."""

    def __init__(self, root: Path, environment: dict[str, str], log: Path) -> None:
        self.root, self.log = root, log
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JOBSPLATFORM_", "JOBS_", "PROMETHEUS_", "DJANGO_"))
        }
        self.environment = clean | environment | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'queue'}"}
        self.children: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str) -> str:
        """One `manage.py` command to its end; what it printed."""
        done = subprocess.run(
            [sys.executable, str(self.root / "manage.py"), *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def code(self, *arguments: str) -> int:
        """The exit code of one `manage.py` command."""
        return subprocess.run(
            [sys.executable, str(self.root / "manage.py"), *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=300,
        ).returncode

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, *command], cwd=self.root, env=self.environment, stdout=output, stderr=output
            )
        self.children.append(child)
        return child

    def web(self) -> int:
        """Start gunicorn and wait until it is ready; its port."""
        port = free_port()
        self.start("-m", "gunicorn", "-c", "gunicorn.conf.py", "--bind", f"127.0.0.1:{port}")
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if status(port) == 200:
                return port
            time.sleep(0.2)
        raise AssertionError(f"the web of {self.root} is not ready: {self.log.read_text()[-2_000:]}")

    def manage(self, *arguments: str) -> subprocess.Popen[bytes]:
        return self.start(str(self.root / "manage.py"), *arguments)

    def end(self) -> None:
        for child in self.children:
            child.terminate()
        for child in self.children:
            try:
                child.wait(40)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.children.clear()


def status(port: int, path: str = "/readyz") -> int:
    """The status of a GET; 0: no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


class Load:
    """Producers that enqueue one job after another at each port, and know what was acknowledged."""

    def __init__(self, token: str, tenant: str, *, pause_s: float = 0.02, size: int = 100) -> None:
        self._token, self._tenant, self._pause_s = token, tenant, pause_s
        self._payload = "x" * size
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.acknowledged: list[tuple[float, str]] = []  # when (monotonic), which job
        self.waits: list[float] = []  # seconds of each acknowledged call
        self.refused: list[tuple[float, int]] = []  # when, status; 0: no answer

    def at(self, port: int) -> None:
        thread = threading.Thread(target=self._run, args=(port,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, port: int) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            body = {"kind": "bench.noop", "payload": self._payload, "priority": number % 5}
            began = time.monotonic()
            try:
                job_id = self._post(port, body)["job_id"]
                self.acknowledged.append((time.monotonic(), job_id))
                self.waits.append(time.monotonic() - began)
            except urllib.error.HTTPError as error:
                error.close()
                self.refused.append((time.monotonic(), error.code))
            except OSError:
                self.refused.append((time.monotonic(), 0))
            self._over.wait(self._pause_s)

    def _post(self, port: int, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/jobs",
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self._token}",
                "Jobsplatform-Tenant": self._tenant,
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    @property
    def job_ids(self) -> set[str]:
        return {job_id for _, job_id in self.acknowledged}


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
