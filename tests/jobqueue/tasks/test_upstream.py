"""Django's own suite of Tasks against our backend, from the sdist that the registry has (`django-tasks` has none)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

ROOT = Path(__file__).resolve().parents[3]
DJANGO = "Django>=6.0,<6.1"  # whose interface django-tasks has on 5.2
NEWER = ("python3.14", "python3.13", "python3.12")
RUN_MIN = 60  # tests of the suite that are about any backend; fewer would mean that it was not found


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `tests/tasks` of the first Django that has one."""
    folder = tmp_path_factory.mktemp("sdist")
    flags = ["--no-deps", "--no-binary", ":all:", "--ignore-requires-python"]
    command = [sys.executable, "-m", "pip", "download", "-q", *flags, "-d", str(folder), DJANGO]
    subprocess.run(command, check=True, timeout=300)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        members = [one for one in tar.getmembers() if "/tests/tasks/" in one.name]
        tar.extractall(folder, members, filter="data")
    [found] = folder.glob("*/tests/tasks")
    return found


def _newer_pythons() -> list[str]:
    """By name, and those that pyenv keeps without putting them on the path."""
    kept = Path.home().glob(".pyenv/versions/*/bin/python3.1[2-9]")
    return [*filter(None, map(shutil.which, NEWER)), *map(str, sorted(kept, reverse=True))]


def _works(python: str) -> bool:
    """A name on the path may be a shim of a version that is not chosen here."""
    return subprocess.run([python, "-c", "import ensurepip, ssl"], capture_output=True).returncode == 0


def run(python: str, suite: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    from jobqueue import policies
    from tests import cast

    cast.acme()
    policies.push_by_name("default")
    environment = environment | {
        "DJANGO_SETTINGS_MODULE": "jobsplatform.settings",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'queue'}",
    }
    command = [python, str(ROOT / "tests/jobqueue/tasks/upstream/run.py"), str(suite)]
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert ended.stdout, ended.stderr[-4_000:]
    report = json.loads(ended.stdout.splitlines()[-1])
    return report["run"], report["faults"]


def test_django_s_suite_passes_on_this_django(suite: Path, process_environment: dict[str, str]) -> None:
    count, faults = run(sys.executable, suite, process_environment)
    assert faults == [], "\n".join(faults)
    assert count >= RUN_MIN


def test_django_s_suite_passes_on_django_6(
    suite: Path, process_environment: dict[str, str], tmp_path: Path
) -> None:
    """In an environment of its own, with what pyproject.toml names, but for Django."""
    newer = next(filter(_works, _newer_pythons()), None)
    if newer is None:
        pytest.skip("no Python 3.12 or newer on this machine, which Django 6 needs")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    others = [one for one in project["dependencies"] if not one.lower().startswith("django>=")]
    subprocess.run([newer, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", DJANGO, *others], check=True, timeout=900)
    count, faults = run(python, suite, process_environment)
    assert faults == [], "\n".join(faults)
    assert count >= RUN_MIN
