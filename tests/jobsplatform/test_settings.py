"""The settings: every knob is documented and bounded, unsafe values are refused, secrets are made once."""

from __future__ import annotations

import ast
import os
import queue
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from jobsplatform import checks, secretfiles
from jobsplatform import settings as module

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "jobsplatform" / "settings.py"
EXAMPLE = ROOT / ".env.example"
KNOB = re.compile(r'env(?:\.\w+)?\("(?P<name>[A-Z_]+)", default=(?P<default>[^)]+)\).*  # (?P<meaning>.+)$')
COMPUTED = {"_DATA": ".data", "_DIRECT": "true"}  # as they are without any variable


def knobs() -> list[re.Match[str]]:
    return [match for line in SOURCE.read_text().splitlines() if (match := KNOB.search(line))]


def shown(default: str) -> str:
    """A default as it would stand in the environment."""
    if default in COMPUTED:
        return COMPUTED[default]
    value = getattr(module, default) if default.startswith("_") else ast.literal_eval(default)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def example() -> str:
    """What `.env.example` must hold."""
    lines = [
        "# Every knob with its default. Copy to .env, uncomment. NAME_FILE=/path reads a value from a file."
    ]
    for knob in knobs():
        lines += ["", f"# {knob['meaning']}", f"#{knob['name']}={shown(knob['default'])}"]
    return "\n".join(lines) + "\n"


def test_the_example_environment_is_generated_from_the_settings():
    if os.environ.get("UPDATE_EXAMPLES"):
        EXAMPLE.write_text(example())
    assert EXAMPLE.read_text() == example(), (
        "run UPDATE_EXAMPLES=1 .venv/bin/python -m pytest tests/jobsplatform"
    )


def test_every_knob_says_its_meaning_on_its_line():
    calls = [
        node
        for node in ast.walk(ast.parse(SOURCE.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"env", "env.int", "env.bool", "env.list"}
    ]
    assert len(calls) == len(knobs()) > 10


def test_every_number_among_the_knobs_has_bounds_that_its_line_states():
    numbers = {knob["name"]: knob["meaning"] for knob in knobs() if knob["default"].isdigit()}
    assert set(numbers) == set(checks.BOUNDS)
    for name, (low, high) in checks.BOUNDS.items():
        assert numbers[name].startswith(f"{low}..{high} "), name


def test_no_other_module_reads_a_knob_from_the_environment():
    readers = [
        path.name
        for path in (ROOT / "jobsplatform").rglob("*.py")
        if re.search(r"(environ|getenv).{0,20}[\"']JOBS_", path.read_text())
    ]
    assert readers == []


def test_the_settings_file_stays_short():
    assert len(SOURCE.read_text().splitlines()) <= 200


def test_the_name_queue_is_the_standard_librarys():
    assert "site-packages" not in str(queue.__file__)
    assert ROOT not in Path(queue.__file__).parents
    assert hasattr(queue, "SimpleQueue")


UNSAFE: dict[str, dict[str, Any]] = {
    "jobsplatform.E001": {"DEBUG": True, "ALLOWED_HOSTS": ["jobs.example.org"]},
    "jobsplatform.E002": {"ALLOWED_HOSTS": ["*"]},
    "jobsplatform.E003": {"DATABASE_URL": "postgresql://db.example.org/jobs", "SECRETS_NAMED": False},
    "jobsplatform.E004": {"TOKEN_PEPPER": b"short"},
    "jobsplatform.E005": {"JOBS_DRAIN_SECONDS": 5},
    "jobsplatform.E008": {"JOBS_POST_LOOPBACK": True, "ALLOWED_HOSTS": ["jobs.example.org"]},
    "jobsplatform.W001": {"ALLOWED_HOSTS": ["jobs.example.org"], "HTTPS": False},
}


@pytest.mark.parametrize("check_id", UNSAFE)
def test_an_unsafe_setting_is_refused(settings: Any, check_id: str):
    for name, value in UNSAFE[check_id].items():
        setattr(settings, name, value)
    found = checks.unsafe_settings(None) + checks.knobs_within_bounds(None)
    assert check_id in {message.id for message in found}


def test_the_default_settings_pass_their_checks():
    assert checks.unsafe_settings(None) + checks.knobs_within_bounds(None) == []
    assert checks.databases_are_distinct(None) == []


def test_two_shards_in_one_database_are_refused():
    twice = {**module.DATABASES, "shard1": module.DATABASES["shard0"]}
    assert [message.id for message in checks.faults_of_places(twice)] == ["jobsplatform.E006"]


def test_an_engine_other_than_postgresql_is_refused():
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": "x", "HOST": "", "PORT": ""}
    assert [message.id for message in checks.faults_of_places({"default": sqlite})] == ["jobsplatform.E007"]


@pytest.mark.django_db
def test_the_suites_servers_are_durable():
    assert checks.servers_are_durable(None, databases=["default", "shard0"]) == []


@pytest.mark.django_db
def test_a_server_that_may_lose_commits_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(checks.DURABLE, "fsync", ("never",))
    monkeypatch.setattr(checks, "SERVER_VERSION_MIN", 10**9)
    found = {message.id for message in checks.servers_are_durable(None, databases=["default"])}
    assert found == {"jobsplatform.E011", "jobsplatform.E012"}
    with pytest.raises(SystemCheckError):
        call_command("check", databases=["default"])


def test_a_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path):
    path = tmp_path / "made" / "key"
    first = secretfiles.read_or_make(path)
    assert len(first) >= 50
    assert secretfiles.read_or_make(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


def read_settings(tmp_path: Path, expression: str, **environment: str) -> str:
    """What a fresh process makes of an environment."""
    program = f"from jobsplatform import settings as s; print(({expression}))"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JOBS", "DJANGO"))}
    clean |= {"JOBSPLATFORM_DATA": str(tmp_path), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_without_shards_the_default_database_is_the_one_shard(tmp_path: Path):
    assert read_settings(tmp_path, "s.SHARD_ALIASES, list(s.DATABASES)") == "({0: 'default'}, ['default'])"


def test_a_url_names_hosts_options_and_password(tmp_path: Path):
    url = "postgresql://me:p%40ss@db1:5433,db2:5434/jobs?target_session_attrs=read-write&sslmode=require"
    shown = read_settings(
        tmp_path,
        "[s.DATABASES['default'][k] for k in ('HOST','PORT','NAME','USER','PASSWORD')],"
        " [s.DATABASES['default']['OPTIONS'][k] for k in ('target_session_attrs','sslmode')],"
        " s.DATABASES['shard1']['NAME'], s.SHARD_ALIASES",
        JOBSPLATFORM_DATABASE_URL=url,
        JOBSPLATFORM_SHARDS="one,two",
    )
    assert shown == (
        "(['db1,db2', '5433,5434', 'jobs', 'me', 'p@ss'], ['read-write', 'require'],"
        " 'two', {0: 'shard0', 1: 'shard1'})"
    )


def test_a_secret_may_come_from_a_file(tmp_path: Path):
    (tmp_path / "mounted").write_text("k" * 60)
    shown = read_settings(tmp_path, "s.SECRET_KEY", JOBSPLATFORM_SECRET_KEY_FILE=str(tmp_path / "mounted"))
    assert shown == "k" * 60
    assert not (tmp_path / "secret_key").exists()
