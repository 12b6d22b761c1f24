"""Registering handlers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from jobqueue import safe_to_repeat
from jobqueue.worker import registry
from jobqueue.worker.registry import handler


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    known = dict(registry._handlers)
    yield
    registry._handlers.clear()
    registry._handlers.update(known)


def test_a_handler_is_found_by_its_kind() -> None:
    @handler("test.mine")
    def mine(job):
        return 1

    assert registry.handlers()["test.mine"] is mine


@pytest.mark.parametrize("kind", ["", "Upper", "-a", "a" * 65, "a b", "a\n"])
def test_a_bad_kind_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="no kind"):
        handler(kind)


def test_two_handlers_of_one_kind_are_refused() -> None:
    @handler("test.twice")
    def first(job): ...

    with pytest.raises(ValueError, match="two handlers"):

        @handler("test.twice")
        def second(job): ...


def test_async_and_generator_functions_are_refused() -> None:
    with pytest.raises(TypeError, match="async"):

        @handler("test.async")
        async def a(job): ...

    with pytest.raises(TypeError, match="generator"):

        @handler("test.generator")
        def b(job):
            yield 1


def test_a_function_that_does_not_take_one_job_is_refused() -> None:
    with pytest.raises(TypeError, match="exactly one argument"):

        @handler("test.none")
        def nothing(): ...

    with pytest.raises(TypeError, match="exactly one argument"):

        @handler("test.two")
        def two(job, other): ...


def test_the_decorator_without_a_kind_says_how_to_write_it() -> None:
    with pytest.raises(TypeError, match="@handler"):

        @handler  # type: ignore[arg-type]
        def forgot(job): ...


def test_handlers_can_be_imported_before_django_is_set_up() -> None:
    code = "from jobqueue import handler, Transient; handler('a')(len)"
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# What code declares


def test_what_a_handler_declares_is_known_by_its_kind() -> None:
    @handler("test.declares", schema={"type": "object"}, max_attempts=3, queue="mails", cost_hint_s=2)
    def declares(job): ...

    found = registry.declared()["test.declares"]
    assert found.by.endswith("declares")
    assert found.declaration.members() == {
        "payload_schema": {"type": "object"},
        "max_attempts": 3,
        "queue": "mails",
        "cost_hint_s": 2,
    }


def test_external_effects_need_a_hook_that_reconciles() -> None:
    with pytest.raises(ValueError, match="reconcile"):
        handler("test.acts", external_effects=True)
    handler("test.acts", external_effects=True, reconcile=safe_to_repeat)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff_cap_s": float("nan")}, "backoff_cap_s"),
        ({"queue": "No"}, "queue"),
        ({"schema": {"type": "nope"}}, "schema"),
    ],
)
def test_a_bad_declaration_is_refused_at_import(settings, word) -> None:
    with pytest.raises(ValueError, match=word):
        handler("test.bad", **settings)


def test_a_hook_must_be_a_plain_function_of_the_job() -> None:
    async def slow(job): ...

    with pytest.raises(TypeError, match="reconcile"):
        handler("test.hook", reconcile=slow)
