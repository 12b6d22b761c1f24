"""`manage.py up` from outside: a fresh folder, what lies in it, who is refused, and how all of it ends."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.harness import ROOT, STOP_S, Answer, Platform, environment, free_port, is_alive, kill, until

SECRETS = ("secret_key", "token_pepper", "pg.password")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform with its demo, on a folder that holds other files; its home and temporary folders are known."""
    folder = tmp_path_factory.mktemp("up")
    for name in ("data", "home", "tmp"):
        (folder / name).mkdir()
    (folder / "data" / "notes.txt").write_text("mine\n")
    outside = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    platform = Platform(folder / "data", variables=outside, flags=())
    try:
        platform.start().wait_ready()
        yield platform
    finally:
        platform.close()


def up_again(platform: Platform, data: Path, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        platform.command("up", "--data", str(data), "--port", str(port)),
        cwd=ROOT,
        env=environment(data),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_stranger_sees_a_job_succeed(fresh: Platform) -> None:
    words = [line.split()[1] for line in fresh.output.splitlines() if line.split()[:1] == ["Token"]]
    token = words[0]

    def succeeded() -> list[str]:
        answer = fresh.call("GET", "/v1/jobs?state=succeeded", token=token)
        return [item["job_id"] for item in answer.body["items"]] if answer.status == 200 else []

    until(succeeded, 30, lambda: fresh.output)
    result = fresh.call("GET", f"/v1/jobs/{succeeded()[0]}/result", token=token)
    assert result.body["outcome"] == "succeeded"


def test_the_demo_calls_its_receiver(fresh: Platform) -> None:
    assert any("rundemo" in one.command for one in fresh.group())
    acted = (
        "SELECT count(*) FROM queue_result r JOIN queue_job j ON j.id = r.job_id WHERE j.kind = 'http.call'"
    )
    until(lambda: fresh.rows(acted)[0][0], 30, lambda: fresh.output)


def test_what_a_command_makes_works_in_the_next_request(fresh: Platform) -> None:
    fresh.manage("createtenant", "newcomer")
    fresh.manage("createqueue", "theirs", "--set", "lease_s=5")
    token = fresh.token("--tenant", "newcomer", "--scopes", "produce,work,read")
    answer = fresh.call(
        "POST", "/v1/jobs", {"kind": "text.index", "queue": "theirs", "payload": {"text": "a b"}}, token
    )
    assert answer.status == 201, answer
    path = f"/v1/jobs/{answer.body['job_id']}/result"
    until(lambda: fresh.call("GET", path, token=token).status == 200, 20)
    assert fresh.call("GET", path, token=token).body["result"]["words"] == 2


def test_a_busy_port_and_a_busy_folder_are_one_line_and_exit_1(fresh: Platform, tmp_path: Path) -> None:
    for data, port in ((tmp_path / "other", fresh.port), (fresh.data, free_port())):
        done = up_again(fresh, data, port)
        assert done.returncode == 1
        assert len((done.stdout + done.stderr).splitlines()) == 1, done
        assert not (data / "pg").exists() or data == fresh.data
    assert fresh.call("GET", "/readyz").status == 200


def test_everything_written_lies_under_the_folder(fresh: Platform) -> None:
    assert (fresh.data / "notes.txt").read_text() == "mine\n"
    assert (fresh.data / "pg" / "PG_VERSION").is_file()
    for name in ("home", "tmp"):
        assert list((fresh.data.parent / name).rglob("*")) == []
    allowed = (str(fresh.data), str(fresh.log), "/dev/", "/memfd:", "pipe:", "socket:", "anon_inode:")
    for one in fresh.group():
        for path in _written(one.pid):
            is_nameless = path.endswith(
                " (deleted)"
            )  # shared memory between processes: it leaves nothing behind
            assert path.startswith(allowed) or is_nameless, (one.command, path)


def _written(pid: int) -> list[str]:
    """Files that a process holds open for writing."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            flags = int(
                (Path(f"/proc/{pid}/fdinfo") / link.name).read_text().split("flags:")[1].split()[0], 8
            )
            if flags & os.O_ACCMODE != os.O_RDONLY:
                found.append(os.readlink(link))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_their_owners_alone(fresh: Platform, name: str) -> None:
    assert stat.S_IMODE((fresh.data / name).stat().st_mode) == 0o600


def test_a_lost_database_is_brought_back(fresh: Platform) -> None:
    """What becomes of jobs when it is lost is shown by tests/chaos."""
    lost = fresh.postmaster()
    assert os.getpgid(lost) != fresh.pid
    kill(lost)
    until(lambda: "had ended; started again" in fresh.output, 30, lambda: fresh.output)
    fresh.wait_ready()
    assert fresh.postmaster() != lost


def test_it_ends_in_time_with_work_going_on_and_starts_again_on_what_it_left(fresh: Platform) -> None:
    token = fresh.tenant("kept")
    body = {"kind": "demo.sleep", "payload": {"seconds": 60}, "priority": 0}
    path = f"/v1/jobs/{fresh.call('POST', '/v1/jobs', body, token).body['job_id']}"
    until(lambda: fresh.call("GET", path, token=token).body["state"] == "running", 20)
    assert_ends(fresh, token)
    secrets, shown = [(fresh.data / name).read_bytes() for name in SECRETS], len(fresh.output)
    assert "operator / " in fresh.output[:shown]
    fresh.start("--no-demo", "--no-workers").wait_ready()
    assert "Operator" in fresh.output[shown:]
    assert not [word for word in ("operator / ", "jp_") if word in fresh.output[shown:]], "shown once"
    assert secrets == [(fresh.data / name).read_bytes() for name in SECRETS]
    job = fresh.call("GET", path, token=token).body
    assert (job["state"], job["attempts_used"]) == ("ready", 0), "given back, and not charged"
    assert fresh.pids("keeper") == fresh.pids("executor") == []
    assert not any("rundemo" in one.command for one in fresh.group())
    assert all(fresh.pids(role) for role in ("web", "web-worker", "dispatcher", "reaper"))
    assert_ends(fresh, token)


def assert_ends(platform: Platform, token: str) -> None:
    """SIGTERM ends all of it in time, a parked poll is answered, and nothing is left behind."""
    parked: list[Answer] = []
    claim = {"wait_s": 20, "capabilities": ["nobody"]}
    poll = threading.Thread(
        target=lambda: parked.append(platform.call("POST", "/v1/leases/claim", claim, token))
    )
    poll.start()
    time.sleep(0.5)  # on its way; were it not parked yet, it would be answered all the same
    postmaster, group, began = platform.postmaster(), [one.pid for one in platform.group()], time.monotonic()
    assert platform.stop(STOP_S) == 0
    print(f"ended in {time.monotonic() - began:.1f} s")
    poll.join(5)
    assert [(answer.status, answer.body["leases"]) for answer in parked] == [(200, [])]
    assert platform.group() == []
    assert not [pid for pid in [postmaster, *group] if is_alive(pid)]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    platform = Platform(tmp_path_factory.mktemp("sharded") / "data", flags=("--no-demo", "--shards", "2"))
    try:
        platform.start().wait_ready()
        yield platform
    finally:
        platform.close()


def test_two_shards_never_give_one_id_twice_and_both_do_their_work(sharded: Platform) -> None:
    token = sharded.tenant("acme", scopes="produce,read")
    jobs = [{"kind": "text.index", "payload": {"text": "a b"}, "request_key": f"k-{n}"} for n in range(100)]
    answer = sharded.call("POST", "/v1/jobs/batch", {"jobs": jobs}, token)
    ids = {result["job_id"] for result in answer.body["results"]}
    assert len(ids) == 100
    assert len({one.split("-")[0] for one in ids}) == 2, "each shard has an id space of its own"

    def succeeded() -> bool:
        page = sharded.call("GET", "/v1/jobs?state=succeeded&limit=200", token=token)
        return {item["job_id"] for item in page.body["items"]} == ids

    until(succeeded, 60, lambda: sharded.output)
