"""The control database is away for a minute: work goes on over all shards, and the platform says what is the matter."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import psycopg
import pytest

from jobsplatform.embedded import DATABASE
from tests.chaos.harness import SETTINGS, Client, Platform, until

pytestmark = pytest.mark.slow

SHARDS = 4
SET_UP_SECONDS = 240  # five databases are migrated first, on a machine that others use too
AWAY_SECONDS = 60.0
QUIET_SECONDS_MAX = 5.0  # without any success of a verb, on a machine that others use too


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(
        tmp_path / "data",
        variables={"DJANGO_SETTINGS_MODULE": SETTINGS},
        flags=("--no-demo", "--shards", str(SHARDS)),
    )
    try:
        platform.start().wait_ready(SET_UP_SECONDS)
        yield platform
    finally:
        platform.close()


def allow(platform: Platform, allowed: bool) -> None:
    """Let the control database take connections, or refuse them and end those that it has."""
    with psycopg.connect(platform.server.url("postgres"), autocommit=True) as session:
        session.execute(f"ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS {str(allowed).lower()}".encode())
        if not allowed:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [DATABASE]
            )


def page(platform: Platform, path: str) -> tuple[int, str]:
    """A page for somebody who brings a session."""
    connection = HTTPConnection("127.0.0.1", platform.port, timeout=30)
    with closing(connection):
        connection.request("GET", path, headers={"Cookie": "sessionid=abcdefghijklmnopqrstuvwxyz012345"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


class Users:
    """Producers and workers; when each verb last succeeded, and on which shards."""

    def __init__(self, platform: Platform, token: str) -> None:
        self.platform, self.token, self.over = platform, token, threading.Event()
        self.successes: dict[str, list[float]] = {"enqueue": [], "claim": [], "complete": []}
        self.shards: Counter[str] = Counter()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(4)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a call hangs"

    def longest_gap_s(self, verb: str, begin: float, end: float) -> float:
        marks = [begin, *(at for at in self.successes[verb] if begin < at < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(marks))

    def _run(self, number: int) -> None:
        with closing(Client(self.platform.port, self.token)) as client:
            turn = 0
            while not self.over.is_set():
                turn += 1
                key = f"{number}-{turn}"
                self._call(
                    client, "enqueue", "/v1/jobs", {"kind": "nobody", "payload": 1, "request_key": key}
                )
                claimed = self._call(client, "claim", "/v1/leases/claim", {"queue": "default", "limit": 5})
                for lease in (claimed or {}).get("leases", []):
                    self.shards[lease["job_id"].split("-")[0]] += 1
                    assert lease["tenant"] == "acme"
                    held = {"generation": lease["generation"], "lease_token": lease["lease_token"]}
                    self._call(client, "complete", f"/v1/jobs/{lease['job_id']}/complete", held)

    def _call(
        self, client: Client, verb: str, path: str, body: Mapping[str, object]
    ) -> dict[str, list[dict[str, str]]]:
        answer = client.call("POST", path, body)
        self.statuses[verb, answer.status] += 1
        if answer.status in (200, 201):
            self.successes[verb].append(time.monotonic())
        return answer.body if answer.status == 200 else {}


def test_work_goes_on_while_the_control_database_is_away_for_a_minute(sharded: Platform) -> None:
    token = sharded.tenant("acme")
    users = Users(sharded, token)
    until(lambda: len(users.shards) == SHARDS, 60, "not every shard has work")
    until(lambda: len(users.successes["complete"]) > 100, 60, "nothing moves")
    allow(sharded, False)
    began = time.monotonic()
    try:
        time.sleep(5)
        users.shards.clear()
        answer = sharded.call("GET", "/readyz")
        assert (answer.status, answer.body["status"]) == (200, "degraded")
        assert "control database: cannot be reached" in str(answer.body)
        status, text = page(sharded, "/admin/")
        assert status == 503
        assert "database does not answer" in text
        time.sleep(max(0.0, began + AWAY_SECONDS - time.monotonic()))
        ended = time.monotonic()
    finally:
        allow(sharded, True)
    gaps = {verb: users.longest_gap_s(verb, began, ended) for verb in users.successes}
    counts = {verb: sum(began < at < ended for at in marks) for verb, marks in users.successes.items()}
    served = set(users.shards)
    until(lambda: sharded.call("GET", "/readyz").body["status"] == "ready", 30, "control does not come back")
    users.stop()
    print(
        f"without control for {ended - began:.0f} s: {counts}; longest without one {gaps}; {dict(users.statuses)}"
    )
    assert max(gaps.values()) < QUIET_SECONDS_MAX
    assert served == {str(number) for number in range(SHARDS)}
    assert {status for _, status in users.statuses} <= {200, 201, 503}
    assert page(sharded, "/admin/")[0] in (200, 302)
    assert sharded.fsck() == []
