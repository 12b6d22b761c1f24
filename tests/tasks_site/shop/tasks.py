"""Tasks as a site writes them: nothing here knows which backend runs them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or find_spec("django.tasks") is None:
    from django_tasks import TaskContext, task
else:
    from django.tasks import TaskContext, task


class OutOfStock(Exception):
    """What this site raises."""


@task
def add(left: int, right: int) -> int:
    return left + right


@task(priority=80)
def urgent(word: str) -> str:
    return word.upper()


@task
async def gently(word: str) -> str:
    return word.lower()


@task
def order(item: str) -> None:
    raise OutOfStock(f"no {item} left")


@task(takes_context=True)
def third_time_lucky(context: TaskContext, word: str) -> dict[str, Any]:
    if context.attempt < 3:
        raise OutOfStock(f"attempt {context.attempt}")
    return {"word": word, "attempt": context.attempt, "errors": len(context.task_result.errors)}


@task
def no_json() -> object:
    return object()


@task
def leave() -> None:
    raise SystemExit(3)


@task(takes_context=True)
def who(context: TaskContext) -> list[str]:
    return context.task_result.worker_ids
