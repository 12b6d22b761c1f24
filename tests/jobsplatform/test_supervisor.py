"""`manage.py up`: what it starts, keeps alive and ends, and what ends with it when it is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A small project in place of ours: the same process tree, without a database.
MANAGE = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from jobsplatform.loop import die_with_parent
if "--prepare" in sys.argv:
    print("prepared", *sys.argv[2:], flush=True)
    sys.exit(int(os.environ.get("PREPARE_EXIT", "0")))
die_with_parent()
if sys.argv[1] == os.environ.get("ENDS_AT_ONCE"):
    sys.exit(7)
signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("DEAF") else lambda *_: sys.exit(0))
print("started", sys.argv[1], flush=True)
while True:
    time.sleep(0.05)
"""
CONFIGURATION = """
__file__ = {real!r}
exec(compile(open({real!r}).read(), {real!r}, "exec"))
chdir, wsgi_app = {root!r}, "web:application"
"""
WEB = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
"""
START = """
import sys
from pathlib import Path
from jobsplatform.embedded import EmbeddedError
from jobsplatform.supervisor import Options, Supervisor, UpError
root, port = sys.argv[1:3]
flags = sys.argv[3:]
options = Options(port=int(port), data=Path(root) / "data", shards=1, demo="--no-demo" not in flags,
                  workers="--no-workers" not in flags, root=Path(root), server=None)
try:
    Supervisor(options).run()
except (UpError, EmbeddedError) as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


class Up:
    """A supervisor in a process group of its own, with its output in a file."""

    def __init__(self, command: list[str], port: int, log: Path, **environment: str) -> None:
        self.port, self.log = port, log
        given = {name: value for name, value in os.environ.items() if not name.startswith("JOBS")}
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**given, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.output
            time.sleep(0.02)

    def wait_until_ready(self, seconds: float = 20) -> None:
        self.wait_for(lambda: "Ready" in self.output or self.process.poll() is not None, seconds)
        assert "Ready" in self.output, self.output
        assert self.is_ready()

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def group(self) -> dict[int, str]:
        """The living processes of its group, without itself: process id → command line."""
        listed = subprocess.run(
            ["ps", "-wweo", "pid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
        )
        found = {}
        for line in listed.stdout.splitlines():
            pid, group, state, command = line.split(None, 3)
            if int(group) == self.process.pid and int(pid) != self.process.pid and "Z" not in state:
                found[int(pid)] = command
        return found

    def pid_of(self, word: str) -> int:
        found: list[int] = []

        def seen() -> bool:
            found[:] = sorted(pid for pid, command in self.group().items() if word in command)
            return bool(found)

        self.wait_for(seen)  # from one listing: what an earlier one showed may be gone by the next
        return found[0]

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=seconds)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "manage.py").write_text(MANAGE.format(root=str(ROOT)))
    real = str(ROOT / "gunicorn.conf.py")
    (tmp_path / "gunicorn.conf.py").write_text(CONFIGURATION.format(real=real, root=str(tmp_path)))
    (tmp_path / "web.py").write_text(WEB)
    return tmp_path


@pytest.fixture
def start(project: Path) -> Iterator[Callable[..., Up]]:
    """Starts supervisors and ends whatever is left of them."""
    made: list[Up] = []

    def begin(*flags: str, port: int = 0, **environment: str) -> Up:
        port = port or free_port()
        command = [sys.executable, "-c", START, str(project), str(port), *flags]
        up = Up(command, port, project / f"up{len(made)}.log", JOBS_WEB_PROCESSES="1", **environment)
        made.append(up)
        return up

    yield begin
    for up in made:
        if up.process.poll() is None or up.group():
            os.killpg(up.process.pid, signal.SIGKILL)
        up.process.wait()


def test_it_prepares_starts_everything_and_says_when_it_is_ready(start: Callable[..., Up]):
    up = start()
    up.wait_until_ready()
    commands = " ".join(up.group().values())
    assert all(word in commands for word in ("gunicorn", "rundispatcher", "runreaper", "runworker"))
    assert up.output.index("prepared") < up.output.index("started")
    assert f"http://127.0.0.1:{up.port}/admin/" in up.output
    assert up.end() == 0
    assert up.group() == {}


def test_no_workers_leaves_out_the_worker_alone(start: Callable[..., Up]):
    up = start("--no-workers", "--no-demo")
    up.wait_until_ready()
    commands = " ".join(up.group().values())
    assert "runworker" not in commands
    assert "rundispatcher" in commands
    assert "--no-demo" in up.output
    assert up.end() == 0


def test_what_dies_is_started_again(start: Callable[..., Up]):
    up = start()
    up.wait_until_ready()
    for word in ("runworker", "rundispatcher", "runreaper", "gunicorn"):
        before = up.pid_of(word)
        os.kill(before, signal.SIGKILL)
        up.wait_for(lambda word=word, before=before: up.pid_of(word) != before)  # type: ignore[misc]
    up.wait_for(lambda: up.output.count("ended by SIGKILL; starting again") == 4)
    up.wait_for(up.is_ready)


def test_what_dies_at_once_is_started_again_ever_more_slowly(start: Callable[..., Up]):
    up = start(ENDS_AT_ONCE="runreaper")
    up.wait_until_ready()
    up.wait_for(lambda: up.output.count("reaper           ended with 7") >= 3)
    assert "0.2 s" in up.output
    assert "0.8 s" in up.output


def test_connections_wait_while_the_web_restarts(start: Callable[..., Up]):
    up = start()
    up.wait_until_ready()
    os.kill(up.pid_of("gunicorn"), signal.SIGKILL)
    socket.create_connection(("127.0.0.1", up.port), timeout=5).close()  # never refused
    up.wait_for(up.is_ready, 30)


def test_all_children_end_with_a_killed_supervisor_and_the_port_is_free_for_the_next(
    start: Callable[..., Up],
):
    first = start()
    first.wait_until_ready()
    first.process.kill()
    second = start(port=first.port)
    first.process.wait()
    first.wait_for(lambda: not first.group(), 5)
    second.wait_until_ready()
    assert second.end() == 0


def test_ctrl_c_in_a_terminal_reaches_the_supervisor_alone(start: Callable[..., Up]):
    up = start()
    up.wait_until_ready()
    os.killpg(up.process.pid, signal.SIGINT)
    assert up.process.wait(timeout=30) == 0
    assert "Stopped" in up.output
    assert "KeyboardInterrupt" not in up.output


def test_a_second_signal_does_not_wait(start: Callable[..., Up]):
    up = start(DEAF="1")
    up.wait_until_ready()
    up.process.terminate()
    up.wait_for(lambda: "Stopping" in up.output)
    began = time.monotonic()
    assert up.end() == 0
    assert time.monotonic() - began < 5
    assert up.group() == {}


def test_a_busy_port_is_one_line_and_exit_1(start: Callable[..., Up]):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        up = start(port=other.getsockname()[1])
        assert up.process.wait(timeout=20) == 1
    assert len(up.output.splitlines()) == 1
    assert "--port" in up.output


def test_a_second_supervisor_of_one_folder_is_one_line_and_exit_1(start: Callable[..., Up]):
    first = start()
    first.wait_until_ready()
    second = start()
    assert second.process.wait(timeout=20) == 1
    assert second.output.splitlines() == [
        f"`manage.py up` already runs on {first.log.parent / 'data'} (process {first.process.pid})."
    ]
    assert first.is_ready()


def test_a_failed_preparation_starts_nothing(start: Callable[..., Up]):
    up = start(PREPARE_EXIT="3")
    assert up.process.wait(timeout=20) == 1
    assert "started" not in up.output


# The real thing: see tests/e2e/test_up.py


def test_a_data_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()
    command = [sys.executable, str(ROOT / "manage.py"), "up", "--data", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"{file}: File exists\n")
