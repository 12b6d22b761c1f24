"""What two attempts said, side by side: the right two, readable, and inert whatever they hold."""

from __future__ import annotations

import pytest

from dlq import differing
from dlq.differing import Line
from jobqueue import upkeep
from jobqueue.ids import format_id
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import at

TRACE = 'Traceback (most recent call last):\n  File "/app/mail.py", line {line}, in send\n{error}'


def failing(*messages: str) -> str:
    """The address of a dead letter whose attempts ended so, one after the other."""
    job_id = cast.enqueue(now=at(0), max_attempts=len(messages))
    for turn, message in enumerate(messages):
        when = 10_000 * turn
        upkeep.promote(now=at(when))
        (lease,) = cast.claim(now=at(when))
        cast.fail(lease, now=at(when + 1), message=message)
    return f"/admin/dlq/deadletter/{format_id(job_id)}/change/"


# Texts


def test_lines_that_differ_are_marked_and_the_others_stand_around_them() -> None:
    old, new = TRACE.format(line=7, error="OSError: down"), TRACE.format(line=9, error="OSError: down")
    assert differing.diff_texts(old, new) == [
        Line(" ", "Traceback (most recent call last):"),
        Line("-", '  File "/app/mail.py", line 7, in send'),
        Line("+", '  File "/app/mail.py", line 9, in send'),
        Line(" ", "OSError: down"),
    ]


def test_texts_that_say_the_same_have_no_lines_and_long_ones_are_not_compared() -> None:
    assert differing.diff_texts("a\nb\n", "a\r\nb") == []
    assert differing.diff_texts("a\n" * (differing.LINES_MAX + 1), "a") is None


@pytest.mark.parametrize("odd", ["-- a", "++ b", "@@ -1 +1 @@", "", "a\u2028b", "\ud800", "\x00"])
def test_an_odd_line_stays_one_line(odd: str) -> None:
    found = differing.diff_texts("before\nsame", f"{odd}\nsame")
    assert found is not None
    assert found == [Line("-", "before"), Line("+", odd), Line(" ", "same")]


# The page


@pytest.mark.django_db
def test_a_dead_letter_compares_its_newest_two_attempts_and_any_others_on_demand() -> None:
    address = failing("first fault", "second fault", "third fault")
    client = admin_cast.operator()
    text = page(client, address)
    assert '<del class="removed">- second fault</del>' in text
    assert '<ins class="added">+ third fault</ins>' in text
    text = page(client, f"{address}?old=1&new=2")
    assert '<del class="removed">- first fault</del>' in text
    assert '<ins class="added">+ second fault</ins>' in text
    for odd in ("old=99&new=x", "old=&new=", "old=%00", "new=1"):
        assert "What two attempts said" in page(client, f"{address}?{odd}")


@pytest.mark.django_db
def test_one_attempt_has_nothing_to_be_compared_with() -> None:
    assert "What two attempts said" not in page(admin_cast.operator(), failing("only one"))


@pytest.mark.django_db
def test_attempts_that_said_the_same_are_told_so() -> None:
    assert "Both said the same." in page(admin_cast.operator(), failing("boom", "boom"))


@pytest.mark.django_db
def test_hostile_messages_are_inert() -> None:
    hostile = "</pre><script>alert(1)</script>\n<img src=x onerror=alert(2)>\n\u202ereversed\x07"
    text = admin_cast.operator().get(failing("plain", hostile)).content.decode()
    assert "<script>alert(1)" not in text
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert "&lt;img src=x onerror=alert(2)&gt;" in text
