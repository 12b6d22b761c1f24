"""The backend's arithmetic and texts: priorities, kinds, payloads, errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.declarations import KIND
from jobqueue.limits import MESSAGE_BYTES_MAX
from jobqueue.tasks import calls, priorities, texts
from jobqueue.tasks.calls import TaskCall

PRIORITIES = st.integers(-100, 100)
QUEUES = st.integers(1, 100).flatmap(lambda bands: st.tuples(st.just(bands), st.integers(0, bands - 1)))


@given(PRIORITIES, QUEUES)
def test_every_priority_is_a_band_of_its_queue(priority: int, queue: tuple[int, int]) -> None:
    bands, default = queue
    assert 0 <= priorities.band_of(priority, bands=bands, default=default) < bands


@given(PRIORITIES, PRIORITIES, QUEUES)
def test_a_larger_priority_is_never_in_a_less_urgent_band(
    one: int, other: int, queue: tuple[int, int]
) -> None:
    bands, default = queue
    low, high = sorted((one, other))
    found = [priorities.band_of(priority, bands=bands, default=default) for priority in (low, high)]
    assert found[0] >= found[1]


@given(QUEUES)
def test_the_ends_of_the_scale_are_the_first_and_the_last_band(queue: tuple[int, int]) -> None:
    bands, default = queue
    found = [priorities.band_of(priority, bands=bands, default=default) for priority in (100, 0, -100)]
    assert found == [0, default, bands - 1]


@pytest.mark.parametrize(("priority", "band"), [(100, "P0"), (50, "P0"), (49, "P3"), (-1, "P3"), (-9, "P3")])
def test_a_table_s_largest_key_that_is_not_above_counts(priority: int, band: str) -> None:
    assert priorities.chosen(priority, {50: "P0", 0: "P3"}) == band


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_every_path_has_a_kind(path: str) -> None:
    assert KIND.fullmatch(calls.kind_of(path))


@given(st.from_regex(KIND, fullmatch=True))
def test_a_path_that_is_a_kind_is_its_own(path: str) -> None:
    assert calls.kind_of(path) == path


@given(st.text("abAB._", min_size=1, max_size=80), st.text("abAB._", min_size=1, max_size=80))
def test_two_paths_have_two_kinds(one: str, other: str) -> None:
    assert (calls.kind_of(one) == calls.kind_of(other)) == (one == other)


@given(
    st.lists(st.integers() | st.booleans() | st.none()), st.dictionaries(st.text("ab"), st.none()), PRIORITIES
)
def test_a_call_comes_back_from_its_payload(
    args: list[object], kwargs: dict[str, None], priority: int
) -> None:
    call = TaskCall("app.tasks.add", args, dict(kwargs), priority)
    assert calls.load(calls.dump(call)) == call


@pytest.mark.parametrize("priority", ["true", "101", "1.5", '"5"', "null"])
def test_a_payload_s_priority_that_is_none_counts_as_zero(priority: str) -> None:
    call = calls.load(f'{{"task": "a.b", "args": [], "kwargs": {{}}, "priority": {priority}}}')
    assert call is not None
    assert call.priority == 0


class Shouting(Exception):
    """With whatever text."""


@given(st.text())
def test_an_error_s_class_comes_back_whatever_its_text(words: str) -> None:
    message = texts.write(Shouting(words))
    assert texts.read(message).path == f"{Shouting.__module__}.{Shouting.__qualname__}"
    assert len(message.encode("utf-8", "replace")) <= MESSAGE_BYTES_MAX


@given(st.text())
def test_any_message_can_be_read(message: str) -> None:
    told = texts.read(message)
    assert told.path is None or "." in told.path


def test_of_a_long_traceback_the_end_is_kept() -> None:
    def deep(n: int) -> None:
        if not n:
            raise Shouting("here")
        (deep if n % 2 else lambda m: deep(m))(n - 1)

    with pytest.raises(Shouting) as raised:
        deep(400)
    message = texts.write(raised.value)
    assert texts.CUT in message
    assert message.endswith("Shouting: here\n")


def test_an_error_whose_text_fails_is_told_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert "its text failed with ValueError" in texts.write(Broken())
