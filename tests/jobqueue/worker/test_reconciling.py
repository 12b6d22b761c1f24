"""Before a handler may act again: what its hook is asked, and what each answer means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobqueue import (
    Done,
    JobContext,
    NotDone,
    Overload,
    Permanent,
    Release,
    StillUnknown,
    Transient,
    Uncertain,
    handler,
    leases,
    safe_to_repeat,
)
from jobqueue.worker import registry
from jobqueue.worker.outcomes import LeaseLost
from tests.jobqueue.worker.fake import Rig

KIND = "test.reconciled"
Act = Callable[[JobContext], Any]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    registry._handlers.pop(KIND, None)
    registry._declared.pop(KIND, None)


def settled(act: Act, hook: Act | None = None, *, is_lost: bool = True, acts_outside: bool = False) -> Any:
    """The call that settles a job; `is_lost`: an earlier attempt may have acted."""
    handler(KIND, reconcile=hook, external_effects=acts_outside)(act)
    with Rig(handlers={KIND: act}) as rig:
        rig.queue.add(kind=KIND, reconcile=is_lost, earlier_generations=[1, 2] if is_lost else [])
        rig.until(rig.queue.done)
    (call,) = [call for verb in ("complete", "fail", "release") for call in rig.queue.calls[verb]]
    return call


def never(job: JobContext) -> None:
    raise AssertionError("it must not act")


def raising(error: BaseException) -> Act:
    def act(job: JobContext) -> Any:
        raise error

    return act


# The hook


def test_done_completes_with_its_result_and_the_handler_does_not_act() -> None:
    assert settled(never, lambda job: Done({"id": 7})).result == '{"id":7}'


def test_not_done_lets_the_handler_act() -> None:
    assert settled(lambda job: "acted", lambda job: NotDone()).result == '"acted"'


def test_still_unknown_waits_and_the_handler_does_not_act() -> None:
    call = settled(never, lambda job: StillUnknown("ask again", retry_after_s=9))
    assert (call.error_class, call.message, call.retry_after_s) == ("uncertain", "ask again", 9)


def test_a_lost_attempt_of_a_kind_without_a_hook_is_never_repeated_blindly() -> None:
    call = settled(never)
    assert (call.error_class, "no reconcile hook" in call.message) == ("uncertain", True)


def test_without_a_lost_attempt_no_hook_is_asked() -> None:
    assert settled(lambda job: "acted", never, is_lost=False).result == '"acted"'


def test_the_hook_knows_the_earlier_generations_and_the_operation() -> None:
    call = settled(never, lambda job: Done([job.operation_id, list(job.earlier_generations), job.reconcile]))
    assert call.result == '["0-1",[1,2],true]'


def test_where_the_receiver_dedupes_it_is_safe_to_repeat() -> None:
    assert settled(lambda job: "acted", safe_to_repeat).result == '"acted"'


@pytest.mark.parametrize("error", [ValueError("bug"), Transient("down"), Permanent("no"), SystemExit(3)])
def test_a_hook_that_fails_in_any_way_knows_nothing(error: BaseException) -> None:
    assert settled(never, raising(error)).error_class == "uncertain"


def test_a_hook_that_is_told_when_to_come_back_is_heard() -> None:
    assert settled(never, raising(Overload("busy", retry_after_s=30))).retry_after_s == 30


def test_a_hook_may_give_the_job_back() -> None:
    assert isinstance(settled(never, raising(Release(5))), leases.Release)


@pytest.mark.parametrize("answer", [None, True, "done"])
def test_an_answer_that_is_none_of_the_three_counts_as_unknown(answer: object) -> None:
    call = settled(never, lambda job: answer)
    assert (call.error_class, type(answer).__name__ in call.message) == ("uncertain", True)


def test_a_done_whose_result_is_no_json_is_a_permanent_failure() -> None:
    assert settled(never, lambda job: Done(object())).error_class == "permanent"


# The handler


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1)])
def test_an_unforeseen_error_of_what_acts_outside_is_uncertain(error: BaseException) -> None:
    call = settled(raising(error), safe_to_repeat, is_lost=False, acts_outside=True)
    assert (call.error_class, type(error).__name__ in call.message) == ("uncertain", True)


def test_an_unforeseen_error_of_what_does_not_is_transient() -> None:
    assert settled(raising(ValueError("boom")), is_lost=False).error_class == "transient"


@pytest.mark.parametrize(
    ("error", "word"),
    [(Transient("x"), "transient"), (Permanent("x"), "permanent"), (Uncertain("x"), "uncertain")],
)
def test_what_a_handler_says_on_purpose_stands(error: BaseException, word: str) -> None:
    call = settled(raising(error), safe_to_repeat, is_lost=False, acts_outside=True)
    assert call.error_class == word


def test_a_lost_lease_says_nothing_also_where_it_acts_outside() -> None:
    handler(KIND, reconcile=safe_to_repeat, external_effects=True)(raising(LeaseLost("gone")))
    with Rig(handlers={KIND: raising(LeaseLost("gone"))}) as rig:
        rig.queue.add(kind=KIND)
        rig.until(lambda: rig.words and not rig.held)
    assert rig.queue.done() == 0
