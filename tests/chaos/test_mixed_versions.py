"""S132: the version before runs beside this one while migrations are applied live, a `pg_dump` reading all the time."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from jobsplatform.embedded import Server
from jobsplatform.embedded.binaries import find_binaries
from tests.chaos.rig import ROOT, Checkout, Load, quantile

pytestmark = [pytest.mark.slow, pytest.mark.needs("git")]

SETTLE_SECONDS = 60
WAITS = """
    SELECT max(extract(epoch FROM clock_timestamp() - l.waitstart))::float8
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND l.waitstart IS NOT NULL AND a.query NOT ILIKE '%CONCURRENTLY%'
"""  # an index that is built beside the work may wait: it holds nobody up


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def _migrations(commit: str) -> set[str]:
    names = _git("ls-tree", "-r", "--name-only", commit).decode().splitlines()
    return {name for name in names if re.search(r"/migrations/\d\w+\.py$", name)}


def _before_the_newest_migration() -> str | None:
    """The last state of the branch with fewer migrations, all of them today's: on a branch that was merged later they
    may have had other numbers, and what was migrated with those no platform ever went on from.
    """
    today = _migrations("HEAD")
    states = _git("rev-list", "--first-parent", "HEAD").decode().split()
    return next((commit for commit in states if _migrations(commit) < today), None)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the commit before the newest migration came."""
    commit = _before_the_newest_migration()
    if commit is None or not _migrations(commit):
        pytest.skip("the history holds no migration")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data")
    made.ensure_running()
    try:
        yield made
    finally:
        made.stop()


class Watch:
    """The longest wait for a lock that anybody had, looked at every 20 ms."""

    def __init__(self, url: str) -> None:
        self._url, self._over = url, threading.Event()
        self.longest_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.wait(0.02):
                row = connection.execute(WAITS).fetchone()
                self.longest_s = max(self.longest_s, (row and row[0]) or 0.0)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)


def _slow_dump(url: str, over: threading.Event) -> threading.Thread:
    """A `pg_dump` whose reader takes its time: its snapshot and its locks stay until `over`."""
    program = find_binaries() / "pg_dump"
    process = subprocess.Popen([str(program), url], stdout=subprocess.PIPE)

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            output.read(4_096)
            over.wait(120)
            while output.read(1 << 20):
                pass
        process.wait(60)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def test_two_versions_share_the_databases_while_the_schema_moves_on(
    before: Path, server: Server, tmp_path: Path
) -> None:
    url = server.url()
    environment = {
        "JOBSPLATFORM_DATA": str(tmp_path / "data"),
        "JOBSPLATFORM_DATABASE_URL": url,
        "JOBSPLATFORM_SECRET_KEY": "k" * 60,
        "JOBSPLATFORM_TOKEN_PEPPER": "p" * 40,
        "JOBS_WEB_PROCESSES": "1",
        "JOBS_PREPARED_STATEMENTS": "true",
    }
    old = Checkout(before, environment, tmp_path / "old.log")
    new = Checkout(ROOT, environment, tmp_path / "new.log")
    over = threading.Event()
    try:
        old.run("migrate", "--verbosity", "0")
        assert "[ ]" not in old.run("showmigrations")
        old.run("createtenant", "acme")
        token = _token(old)
        load = Load(token, "acme", size=4_000)
        load.at(old.web())
        for command in ("runworker", "rundispatcher", "runreaper"):
            old.manage(command)
        time.sleep(5)
        watch = Watch(url)
        dump = _slow_dump(url, over)
        time.sleep(1)
        timer = threading.Timer(6, over.set)  # until then no table can be altered
        timer.start()
        began = time.monotonic()
        new.run("migrateall")
        migrated_s = time.monotonic() - began
        load.at(new.web())
        for command in ("runworker", "rundispatcher", "runreaper"):
            new.manage(command)
        time.sleep(8)
        load.stop()
        watch.stop()
        over.set()
        dump.join(60)
        with psycopg.connect(url, autocommit=True) as connection:
            _wait_until_done(connection, len(load.acknowledged))
            lost = load.job_ids - _succeeded(connection)
        new.run("fsck")
        print(
            f"{len(load.acknowledged)} acknowledged, {len(lost)} lost, {len(load.refused)} refused; migrated in "
            f"{migrated_s:.1f} s, longest lock wait {watch.longest_s:.2f} s, enqueue p99 "
            f"{quantile(load.waits, 0.99):.3f} s"
        )
        assert lost == set()
        assert load.refused == []
        assert len(load.acknowledged) > 200
        assert watch.longest_s <= 3
        assert quantile(load.waits, 0.99) < 1
    finally:
        over.set()
        old.end()
        new.end()


def _token(checkout: Checkout) -> str:
    made = json.loads(checkout.run("createtoken", "--fleet", "--scopes", "produce,work,read", "--json"))
    return str(made["token"])


def _wait_until_done(connection: psycopg.Connection[tuple[int]], jobs: int) -> None:
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        row = connection.execute("SELECT count(*) FROM queue_result").fetchone()
        if row is not None and row[0] >= jobs:
            return
        time.sleep(0.2)


def _succeeded(connection: psycopg.Connection[tuple[int]]) -> set[str]:
    rows = connection.execute("SELECT job_id FROM queue_result WHERE outcome = 'succeeded'")
    return {f"{job_id >> 48}-{job_id & (1 << 48) - 1}" for (job_id,) in rows}
