"""`platform`: a tenant, queues and real worker processes on the suite's databases."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now

from jobqueue.ids import format_id

ROOT = Path(__file__).resolve().parents[3]
_numbers = itertools.count(1)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """A process that has ended and that nobody has buried yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Platform:
    """Each test has a tenant and a queue of its own; workers it starts serve that queue alone."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        from jobqueue import policies
        from tenants.models import Tenant

        self.environment = environment | {"DJANGO_SETTINGS_MODULE": "tests.jobqueue.worker.settings"}
        self.log = folder / "log"
        self.log.touch()
        self.name = f"w{os.getpid()}-{next(_numbers)}"
        self.tenant = Tenant.objects.create(slug=self.name)
        self.queue = policies.create_queue(self.name, actor="test")
        self.shard = settings.SHARD_ALIASES[0]
        self.workers: list[subprocess.Popen[bytes]] = []

    def set(self, **policy: Any) -> None:
        from jobqueue import policies

        self.queue = policies.change_queue(self.name, policy, actor="test")

    def enqueue(self, kind: str, count: int = 1, **payload: Any) -> list[int]:
        from jobqueue.enqueue import Accepted, NewJob, enqueue

        text = json.dumps({"log": str(self.log)} | payload)
        new = NewJob(tenant_id=self.tenant.pk, queue=self.queue, kind=kind, priority=2, payload=text)
        accepted = enqueue([new] * count)
        assert all(isinstance(one, Accepted) for one in accepted), accepted
        return [one.job_id for one in accepted if isinstance(one, Accepted)]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "manage.py"), *arguments]

    def worker(self, *arguments: str, group: bool = False, **environment: str) -> subprocess.Popen[bytes]:
        """`group`: in a process group of its own."""
        command = self.command("runworker", "--queues", self.name, *arguments)
        worker = subprocess.Popen(
            command, env=self.environment | environment, cwd=ROOT, start_new_session=group
        )
        self.workers.append(worker)
        return worker

    def job(self, job_id: int) -> Any:
        from jobqueue import reads
        from jobqueue.types import FLEET

        return reads.job(job_id, scope=FLEET)

    def job_name(self, job_id: int) -> str:
        return format_id(job_id)

    def states(self, job_ids: list[int]) -> list[str]:
        return [self.job(job_id).state for job_id in job_ids]

    def result(self, job_id: int) -> Any:
        from jobqueue import reads
        from jobqueue.types import FLEET

        return json.loads(reads.result(job_id, scope=FLEET).body or "null")

    def attempts(self, job_id: int) -> list[Any]:
        """Ended attempts, oldest first."""
        from jobqueue import reads
        from jobqueue.types import FLEET

        return reads.attempts(job_id, scope=FLEET, before=None, limit=100)[0][::-1]

    def lines(self, word: str) -> list[tuple[str, int, int]]:
        """(job, generation, attempt) of each line that begins with `word`."""
        found = [line.split() for line in self.log.read_text().splitlines()]
        return [(line[1], int(line[2]), int(line[3])) for line in found if line[0] == word]

    def numbers(self, word: str) -> dict[str, int]:
        """Job → the number that it wrote last in a line that begins with `word`."""
        found = [line.split() for line in self.log.read_text().splitlines()]
        return {line[1]: int(line[2]) for line in found if line[0] == word}

    def started(self) -> int:
        """How many running jobs the database knows to have begun: from then on a crash is charged to them."""
        from jobqueue.models import Lease

        return Lease.objects.using(self.shard).filter(is_started=True).count()

    def lapse_orphans(self) -> None:
        """Let time pass for leases whose process is dead, once they are marked: nobody will renew them.

        So a test of crashes needs neither wait for leases to lapse nor make them so short that a busy machine
        loses living ones.
        """
        from jobqueue.models import Lease

        runs = self.runs()
        for lease in Lease.objects.using(self.shard).filter(is_started=True):
            generation, pid = runs.get(format_id(lease.job_id), (0, 0))
            if generation == lease.generation and not is_alive(pid):
                mine = Lease.objects.using(self.shard).filter(job_id=lease.job_id, generation=generation)
                mine.update(expires_at=Now())

    def runs(self) -> dict[str, tuple[int, int]]:
        """Job → the generation that began last, and its process."""
        found: dict[str, tuple[int, int]] = {}
        generation = 0
        for line in self.log.read_text().splitlines():
            word, job, number, *_ = line.split()
            if word == "pid":
                found[job] = (generation, int(number))
            else:
                generation = int(number)
        return found

    def until(
        self, condition: Callable[[], object], timeout_s: float = 30, *, lapse_orphans: bool = False
    ) -> float:
        """Wait, doing the reaper's and the dispatcher's work meanwhile; answers how long it took."""
        from jobqueue import upkeep

        started_at = time.monotonic()
        while not condition():
            assert time.monotonic() - started_at < timeout_s, "it did not happen in time"
            if lapse_orphans:
                self.lapse_orphans()
            upkeep.reap()
            upkeep.promote()
            time.sleep(0.03)
        return time.monotonic() - started_at

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait(10)


@pytest.fixture
def platform(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(process_environment, tmp_path)
    yield platform
    platform.stop()
