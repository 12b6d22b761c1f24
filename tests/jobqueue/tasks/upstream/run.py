"""Runs Django's suite of its Tasks against our backend: `run.py <folder of the sdist's tests/tasks>`.

A copy of the suite is made with our backend's names in it (and the backport's, where Django has no Tasks of its
own), run by unittest on the databases of the environment, and reported as one line of JSON: `run` and `faults`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

DOUBLES = "tests.jobqueue.tasks.upstream.doubles"
OURS = (
    (r"from django\.tasks\.backends\.dummy import", f"from {DOUBLES} import Queued as"),
    (r"from django\.tasks\.backends\.immediate import", f"from {DOUBLES} import Worked as"),
    (r"django\.tasks\.backends\.dummy\.DummyBackend", f"{DOUBLES}.Queued"),
    (r"django\.tasks\.backends\.immediate\.ImmediateBackend", f"{DOUBLES}.Worked"),
    (
        r"from django\.test import (.*TestCase.*)",
        rf"from django.test import \1\nfrom {DOUBLES} import SimpleTestCase, TransactionTestCase",
    ),
)
BACKPORT = (
    (r"from django\.utils\.json import", "from django_tasks.utils import"),
    (r"django\.tasks", "django_tasks"),
    (r"\bInvalidTask(Backend)?\b", r"InvalidTask\1Error"),
    (r"support async Tasks", "support async tasks"),
)
# What they say of those two backends, and not of backends.
NOT_OURS = {
    "test_refresh_result": "it changes what the dummy stores, or reads from asynchronous code what is in a database",
    "test_refresh_result_async": "it changes what the dummy stores",
    "test_cannot_pass_run_after": "we have delays",
    "test_throws_keyboard_interrupt": "a worker stays alive whatever a task raises",
    "test_cannot_get_result": "we have results",
    "test_cannot_get_result_async": "the same",
    "test_cannot_refresh_result": "the same",
    "test_cannot_refresh_result_async": "the same",
}


def main(suite: Path) -> None:
    import django

    django.setup()
    with tempfile.TemporaryDirectory() as folder:
        _stage(suite, Path(folder) / "tasks")
        sys.path.insert(0, folder)
        found = unittest.defaultTestLoader.discover(str(Path(folder) / "tasks"), top_level_dir=folder)
        tests = [test for test in _flat(found) if not _is_about_another(test)]
        outcome = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(unittest.TestSuite(tests))
    faults = [f"{test.id()}\n{text}" for test, text in (*outcome.failures, *outcome.errors)]
    print(json.dumps({"run": outcome.testsRun, "faults": faults}))


def _stage(suite: Path, folder: Path) -> None:
    folder.mkdir()
    changes = OURS if find_spec("django.tasks") else (*OURS, *BACKPORT)
    for path in suite.glob("*.py"):
        text = path.read_text("utf-8")
        for pattern, by in changes:
            text = re.sub(pattern, by, text)
        (folder / path.name).write_text(text, "utf-8")


def _flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for one in suite:
        found += _flat(one) if isinstance(one, unittest.TestSuite) else [one]
    return found


def _is_about_another(test: unittest.TestCase) -> bool:
    if "test_custom_backend" in test.id():
        return True  # of backends that the suite brings along
    return test.id().rsplit(".", 1)[1] in NOT_OURS


if __name__ == "__main__":
    main(Path(sys.argv[1]))
