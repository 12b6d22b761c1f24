"""PostgreSQL is restarted as `-m immediate` does, under load: every process goes on by itself, none is restarted."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.harness import Client, Platform, Web, kill, until
from tests.chaos.load import NOTE_KIND, Load

pytestmark = pytest.mark.chaos

RECOVERY_S = 10  # what the contract allows after the server's return
BOUND_S = 25  # what these tests allow on a machine that others use too: with the supervisor's own 2 s
PROCESSES = ("web", "web-worker", "dispatcher", "reaper", "keeper", "executor")


def restart(platform: Platform) -> float:
    """SIGQUIT to the postmaster; the supervisor starts it again. Answers when the new one took connections."""
    old = platform.postmaster()
    kill(old, signal.SIGQUIT)
    until(lambda: platform.server.pid() not in (None, old), 30, lambda: platform.output[-2_000:])

    def answers() -> bool:
        try:
            return platform.rows("SELECT NOT pg_is_in_recovery()") == [(True,)]
        except Exception:
            return False

    until(answers, 30)
    return time.monotonic()


def started_since(load: Load, lines: int) -> int:
    return len(load.notes.read_text().splitlines()) - lines


def assert_goes_on(platform: Platform, load: Load) -> dict[str, float]:
    """Restart once and wait for each kind of process to do its work again; seconds since the server's return."""
    client = Client(platform.port, load.token)
    body = {"kind": "nobody", "queue": load.name, "payload": {}}
    lapsing = _lapsing(load, client)
    back_at, took = restart(platform), {}
    lines = len(load.notes.read_text().splitlines())
    due = until_accepted(client, body | {"delay_s": 1})
    took["enqueue"] = time.monotonic() - back_at
    note = {"kind": NOTE_KIND, "queue": load.name, "payload": {"log": str(load.notes), "s": 0}, "priority": 0}
    until_accepted(client, note)
    until(lambda: load.history.longest_gap_s("claim", back_at) < BOUND_S, BOUND_S, "no claim")
    took["claim"] = load.history.longest_gap_s("claim", back_at)
    until(lambda: _state(client, due) == "ready", BOUND_S, "the dispatcher promotes nothing")
    took["dispatcher"] = time.monotonic() - back_at
    until(lambda: started_since(load, lines), BOUND_S, "the worker runs nothing")
    took["worker"] = time.monotonic() - back_at
    until(lambda: _state(client, lapsing) == "ready", BOUND_S, "the reaper takes nothing back")
    took["reaper"] = time.monotonic() - back_at
    for job in (due, lapsing):
        assert until_told(client, f"/v1/jobs/{job}/cancel", {}).status == 200
    client.close()
    return took


def _lapsing(load: Load, client: Client) -> str:
    """A job whose lease ends while the server is away."""
    job = until_accepted(client, {"kind": "lapsing", "queue": load.name, "payload": {}})
    claim = {"queue": load.name, "capabilities": ["lapsing"], "lease_s": 1}
    assert until_told(client, "/v1/leases/claim", claim).body["leases"], "it was not there to be claimed"
    return job


def _state(client: Client, job: str) -> str:
    answer = client.call("GET", f"/v1/jobs/{job}")
    return str(answer.body["state"]) if answer.status == 200 else f"{answer.status} {answer.code}"


def until_told(client: Client, path: str, body: object):
    end = time.monotonic() + BOUND_S
    while (answer := client.call("POST", path, body)).is_open:
        assert time.monotonic() < end, answer
        time.sleep(0.1)
    return answer


def until_accepted(client: Client, body: dict[str, object]) -> str:
    answer = until_told(client, "/v1/jobs", body | {"request_key": f"own/{time.monotonic_ns()}"})
    assert answer.status in (200, 201), answer
    return str(answer.body["job_id"])


def run(platform: Platform, load: Load, restarts: int) -> None:
    load.start()
    until(lambda: len(load.history.of("complete")) > 5, 20)
    before = {role: set(platform.pids(role)) for role in PROCESSES}
    slowest: dict[str, float] = {}
    for _ in range(restarts):
        for name, seconds in assert_goes_on(platform, load).items():
            slowest[name] = max(seconds, slowest.get(name, 0))
    print(
        "seconds after the server's return:", {name: round(seconds, 1) for name, seconds in slowest.items()}
    )
    load.drain(300)  # what each restart took along is suspected of it, and runs alone, one after another
    load.stop()
    # Processes for suspects come and go; all others are the same.
    after = {role: set(platform.pids(role)) for role in PROCESSES}
    assert all(after[role] <= before[role] for role in PROCESSES), (
        "no process is started anew",
        before,
        after,
    )
    assert all(after.values())
    forget_own(load)
    checker.assert_sound(load)
    assert max(slowest.values()) < BOUND_S


def forget_own(load: Load) -> None:
    """The jobs of `assert_goes_on` are no part of the load's history: tell it that they were asked for."""
    keys = load.platform.rows(
        "SELECT request_key, id FROM queue_job WHERE request_key LIKE 'own/%%' AND %s <> ''", "x"
    )
    from jobqueue.ids import format_id
    from tests.chaos.harness import Answer

    for key, job_id in keys:
        load.history.add("enqueue", Answer(201, {"job_id": format_id(job_id)}), key=key)


def test_every_process_goes_on_by_itself_after_an_immediate_restart(
    platform: Platform, tmp_path: Path, seed: int
) -> None:
    run(platform, Load(platform, "restart", seed, tmp_path), restarts=1)


@pytest.mark.slow
def test_fifty_restarts(platform: Platform, tmp_path: Path, seed: int) -> None:
    run(platform, Load(platform, "restarts", seed, tmp_path), restarts=50)


def test_a_server_that_is_away_is_503_with_a_time_to_come_back_and_readyz_says_so(platform: Platform) -> None:
    token = platform.tenant("away")
    url = f"{platform.server.url().rsplit('@', 1)[0]}@127.0.0.1:1/nowhere"
    with Web(platform, url) as web:
        assert web.call("GET", "/livez").status == 200
        assert web.call("GET", "/readyz").status == 503
        for path, body in (("/v1/jobs", {"kind": "a", "payload": 1}), ("/v1/leases/claim", {"wait_s": 5})):
            began = time.monotonic()
            answer = web.call("POST", path, body, token)
            assert (answer.status, answer.code) == (503, "unavailable"), answer
            assert int(answer.headers["retry-after"]) >= 1
            assert time.monotonic() - began < 10
