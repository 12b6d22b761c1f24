"""Gives the suite its own PostgreSQL with two databases, control and one shard, before Django is set up.

Without JOBSPLATFORM_TEST_DATABASE_URL an embedded server is made in `.data/test` for this run alone, and
removed at its end (runs beside each other do not meet); JOBSPLATFORM_PG_BIN chooses its version.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import hypothesis
import pytest
from django.conf import settings
from pytest_django import DjangoDbBlocker

from jobsplatform.embedded import Server

# How long an example takes says what else the machine does; benchmarks measure.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

# Django and thousands of tests are no garbage: to look through all of them again and again takes a tenth of the time.
gc.set_threshold(20_000)

ROOT = Path(__file__).resolve().parent.parent
DATABASES = ["default", "shard0"]
KEPT = {
    "JOBSPLATFORM_TEST_DATABASE_URL",
    "JOBSPLATFORM_PG_BIN",
    "JOBSPLATFORM_TEST_RUN",
    "JOBSPLATFORM_PICTURES",
}


def _run_folder() -> tuple[Path, bool]:
    """This run's data folder and whether this process made it (a worker process of pytest-xdist did not)."""
    if given := os.environ.get("JOBSPLATFORM_TEST_RUN"):
        return Path(given), False
    runs = ROOT / ".data" / "test"
    for left in runs.glob("run-*"):
        if not _is_alive(int(left.name.removeprefix("run-"))):
            _remove(left)
    folder = runs / f"run-{os.getpid()}"
    os.environ["JOBSPLATFORM_TEST_RUN"] = str(folder)
    return folder, True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(folder: Path) -> None:
    Server(folder).stop(0)  # no last checkpoint: what it would write is removed
    shutil.rmtree(folder, ignore_errors=True)


def _set_environment(folder: Path) -> None:
    """What the settings will read: nothing of the caller's knobs reaches the suite."""
    for name in [name for name in os.environ if name.startswith(("JOBSPLATFORM_", "JOBS_"))]:
        if name not in KEPT:
            del os.environ[name]
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # a test's many processes need not each compile everything
    os.environ.update(
        DJANGO_SETTINGS_MODULE="jobsplatform.settings",
        JOBSPLATFORM_DATA=str(folder),
        JOBSPLATFORM_DATABASE_URL=os.environ.get("JOBSPLATFORM_TEST_DATABASE_URL", ""),
        JOBSPLATFORM_SHARDS="jobsplatform_shard0",
        JOBSPLATFORM_SECRET_KEY="test-only-" + "k" * 50,
        JOBSPLATFORM_TOKEN_PEPPER="test-only-" + "p" * 32,
        JOBSPLATFORM_DEBUG="false",
        JOBSPLATFORM_HTTPS="false",
        JOBSPLATFORM_ALLOWED_HOSTS="localhost,127.0.0.1,testserver",
        JOBSPLATFORM_LOG_LEVEL="WARNING",
        JOBS_NOTIFICATIONS="false",  # tests of them make listeners of their own
        JOBS_POOL_CONNECTIONS="80",
        JOBS_POOL_WAIT_SECONDS="20",
    )


_folder, _is_owner = _run_folder()
_set_environment(_folder)
if not os.environ["JOBSPLATFORM_DATABASE_URL"]:
    Server(_folder).ensure_running()
_ = settings.DATABASES  # read now: pytest-django sets up Django only for settings that were read


def pytest_configure() -> None:
    """Every run makes both databases: tests in a browser use them without asking for a transaction of their own."""
    from django.contrib.auth.hashers import PBKDF2PasswordHasher
    from pytest_django import fixtures

    PBKDF2PasswordHasher.iterations = 1_000  # a thousandth: what hundreds of tests log in with is no secret
    fixtures._get_databases_for_setup = lambda items: (set(DATABASES), set())


def pytest_unconfigure(config: pytest.Config) -> None:
    if _is_owner:
        _remove(_folder)


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment in which a child process (`manage.py …`) works on this test's databases."""
    from django.db import connections

    def url(alias: str) -> str:
        entry = connections[alias].settings_dict
        user, password = quote(entry["USER"], safe=""), quote(entry["PASSWORD"], safe="")
        host = "127.0.0.1" if entry["HOST"].startswith("/") else entry["HOST"]
        return f"postgresql://{user}:{password}@{host}:{entry['PORT']}/{quote(entry['NAME'], safe='')}"

    shards = ",".join(url(alias) for alias in DATABASES[1:])
    environment = {name: value for name, value in os.environ.items() if name not in KEPT}
    environment |= {"JOBSPLATFORM_DATABASE_URL": url("default"), "JOBSPLATFORM_SHARDS": shards}
    return environment


# Where the long files are: tests of many processes, most of whose time is waiting.
LONG: Final = ("chaos", "jobqueue/worker", "e2e", "clients", "jobsplatform/test_supervisor.py", "concurrency")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Both databases for whoever asks for one; and side by side, long files begin first.

    Files go to the processes of pytest-xdist in the order of collection (`--no-loadscope-reorder`): were a long one
    last, it would run alone. In one process pytest-django's order stays.
    """
    _give_both_databases(items)
    yield
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place_in_line(item.nodeid.removeprefix("tests/")))


def _place_in_line(file: str) -> int:
    return next((place for place, start in enumerate(LONG) if file.startswith(start)), len(LONG))


def _give_both_databases(items: list[pytest.Item]) -> None:
    """A test that asks for the database gets both: none can pass because it had only one."""
    for item in items:
        marker = item.get_closest_marker("django_db")
        asked = {"db", "transactional_db", "django_db_reset_sequences"} & set(
            getattr(item, "fixturenames", ())
        )
        if marker is not None or asked:
            options = {"databases": DATABASES, **(marker.kwargs if marker else {})}
            item.add_marker(pytest.mark.django_db(**options), append=False)


def pytest_collection_finish() -> None:
    gc.freeze()


# What every test of the database starts from


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """A server of this run's own is removed as it is: to drop each database first takes a checkpoint, to the disk."""
    return not os.environ["JOBSPLATFORM_DATABASE_URL"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A test that commits leaves both databases as the migrations did (`tests/cleaning.py`)."""
    from django.db import connections
    from django.test import TransactionTestCase

    from tests import cleaning

    with django_db_blocker.unblock():
        for alias in DATABASES:
            cleaning.remember(alias)
    TransactionTestCase._fixture_teardown = lambda self: clean()  # type: ignore[attr-defined]
    yield
    for connection in connections.all(initialized_only=True):
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]  # of the PostgreSQL backend


def clean() -> None:
    from tests import cleaning

    for alias in DATABASES:
        cleaning.clean(alias)


@pytest.fixture(scope="module")
def shared_ground(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """What fixtures of a module make in the databases is there for each of its tests, and gone after the last.

    They lie in a transaction around the module's tests, each of which takes back what it did itself. So no test of
    such a module may commit. A fixture that builds on this one unblocks the databases itself.
    """
    from django.db import transaction

    outer = [transaction.atomic(using=alias) for alias in DATABASES]
    with django_db_blocker.unblock():
        forget_everything()
        for block in outer:
            block.__enter__()
    yield
    with django_db_blocker.unblock():
        for alias, block in zip(DATABASES, outer, strict=True):
            transaction.set_rollback(True, using=alias)
            block.__exit__(None, None, None)
        forget_everything()


@pytest.fixture(autouse=True)
def _fresh_ground() -> None:
    """No test remembers another's rows."""
    forget_everything()


def forget_everything() -> None:
    """Drop what this process remembers of the databases."""
    from jobqueue import claiming, hub, kinds, lanes, policies, reads, stats, wakeup
    from jobqueue.api import names
    from jobqueue.shards import map as shard_map
    from jobsplatform import database, reach
    from tenants import access

    database.forget_spaces()
    kept = (hub, wakeup, stats, reads, claiming, kinds, lanes, policies, names, access, shard_map, reach)
    for module in kept:
        module.forget()


# Tests that need a program

_missing: dict[str, int] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                _missing[program] = _missing.get(program, 0) + 1
                pytest.skip(f"{program} is not installed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for program, count in sorted(_missing.items()):
        terminalreporter.write_line(f"{count} tests skipped: {program} is not installed")
