"""gunicorn: threads for requests, none for parked polls, an end that wakes those, nothing shared before the fork."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

# Counters of all web processes are one page: they share a folder, named before prometheus_client is imported.
OWN_METRICS = None if "PROMETHEUS_MULTIPROC_DIR" in os.environ else tempfile.mkdtemp(prefix="jobs-metrics-")
METRICS = os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", OWN_METRICS or "")
os.makedirs(METRICS, exist_ok=True)

from prometheus_client import multiprocess  # noqa: E402

from jobsplatform import loop, settings  # noqa: E402

chdir = str(ROOT)
wsgi_app = "jobsplatform.wsgi:application"
bind = ["127.0.0.1:8000"]  # `manage.py up` hands over its own listening socket
worker_class = "jobsplatform.parking.Worker"  # gthread that parks long polls without a thread
workers = settings.JOBS_WEB_PROCESSES
threads = settings.JOBS_WEB_THREADS
worker_connections = 8 * threads + settings.JOBS_PARKED_MAX  # idle and parked connections need no thread
backlog = 2048
keepalive = 15  # seconds
timeout = 60  # seconds without a sign of a process's main loop; requests run in threads and do not count
graceful_timeout = settings.JOBS_DRAIN_SECONDS
preload_app = False  # a connection or a pool's thread must never be forked
control_socket_disable = True  # it would be written to the home folder
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108  (heartbeats: never a slow disk)
accesslog = None
errorlog = "-"
loglevel = "warning"
limit_request_line = 8190
forwarded_allow_ips = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")

if graceful_timeout < 20:
    sys.exit("JOBS_DRAIN_SECONDS is below 20: a long poll of 20 s would be cut off at every restart.")


def on_starting(server: Any) -> None:
    """The master ends with the supervisor that started it; outside Linux a timer looks for it."""
    loop.die_with_parent()
    if sys.platform != "linux":
        signal.signal(signal.SIGALRM, lambda number, frame: os._exit(1) if loop.parent_is_gone() else None)
        signal.setitimer(signal.ITIMER_REAL, loop.PARENT_CHECK_SECONDS, loop.PARENT_CHECK_SECONDS)


def pre_fork(server: Any, worker: Any) -> None:
    """S135: what a master opened, all its children would share."""
    assert "jobsplatform.wsgi" not in sys.modules, "the application was loaded before the fork"


def post_fork(server: Any, worker: Any) -> None:
    loop.die_with_parent(worker.ppid)


def child_exit(server: Any, worker: Any) -> None:
    """What a process that has ended said of its present state counts no more; its counts do."""
    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(server: Any) -> None:
    if OWN_METRICS is not None:
        shutil.rmtree(OWN_METRICS, ignore_errors=True)


def post_worker_init(worker: Any) -> None:
    """SIGTERM wakes the polls that are parked in this process before gunicorn waits for them."""
    from jobsplatform.stopping import stopping

    # An urgent answer passes through four threads; each would wait up to 5 ms for a busy one to let go.
    sys.setswitchinterval(0.001)
    gc.freeze()  # what was loaded stays: a collection needs not look at it, which took tens of milliseconds
    graceful = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: FrameType | None) -> None:
        if callable(graceful):
            graceful(number, frame)  # first: what is answered from now on says that its connection ends
        stopping.set()

    signal.signal(signal.SIGTERM, end)
    _start_beacon()


_beacons: list[Any] = []  # of this process: one, or none


def _start_beacon() -> None:
    """This process says that it lives (after the fork: the beacon has a thread and a connection)."""
    from django.apps import apps

    if apps.ready:  # the application that is served is the platform's
        from jobqueue.processes import Beacon

        _beacons.append(Beacon("web", slots=threads))
        _beacons[0].start()


def worker_exit(server: Any, worker: Any) -> None:
    for beacon in _beacons:
        beacon.end_soon()
