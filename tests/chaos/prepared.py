"""A data folder as the first `up` prepares it, made once a run; a platform begins with a copy.

To make a cluster and to apply every migration takes longer than the start of all processes. The first start itself is
the business of tests/e2e/test_up.py and tests/jobsplatform/test_supervisor.py.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from jobsplatform.embedded import Server
from tests.chaos.harness import ROOT, environment


def folder(data: Path) -> Path:
    """Make `data` such a folder, and answer it."""
    run = Path(os.environ["JOBSPLATFORM_TEST_RUN"])
    made = run / "prepared"
    with (run / "prepared.lock").open("a") as lock:  # the processes of pytest-xdist share it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half_made = run / "preparing"
            _prepare(half_made)
            half_made.rename(made)
    subprocess.run(["cp", "-a", made, data], check=True)  # with owners: the server's account is not ours
    (data / "pg.port").unlink()  # each has a port of its own
    return data


def _prepare(data: Path) -> None:
    server = Server(data)
    server.ensure_running()
    server.create_shards(1)
    try:
        command = [sys.executable, "manage.py", "up", "--prepare", "--no-demo"]
        subprocess.run(command, cwd=ROOT, env=environment(data), check=True, capture_output=True)
    finally:
        server.stop()
