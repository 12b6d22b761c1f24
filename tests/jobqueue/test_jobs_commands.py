"""`jobs` and `audit` on the command line: what the pages do, with one line for each refusal."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobqueue.ids import format_id
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


def _run(*arguments: Any) -> str:
    out = StringIO()
    call_command(*map(str, arguments), stdout=out)
    return out.getvalue()


def test_a_list_goes_on_where_it_says() -> None:
    ids = [format_id(job_id) for job_id in cast.enqueue_many(5)]
    first = _run("jobs", "list", "kind:noop", "--limit", 3)
    place = first.rsplit("--before ", 1)[1].strip().rstrip(".")
    second = _run("jobs", "list", "kind:noop", "--limit", 3, "--before", place)
    assert [line.split()[0] for line in (first + second).splitlines() if line.startswith("0-")] == ids[::-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "list", "nonsense"),
        ("jobs", "list", "--limit", "0"),
        ("jobs", "list", "--before", "x"),
        ("jobs", "list", "--tenant", "nobody"),
        ("jobs", "show", "0-999"),
        ("jobs", "cancel", "x"),
        ("jobs", "retry", "0-999"),
        ("jobs", "reveal", "0-999"),
        ("jobs", "export", "--rows", "0"),
        ("audit", "list", "--limit", "999"),
        ("audit", "list", "--since", "yesterday"),
        ("audit", "list", "--tenant", "nobody"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as caught:
        _run(*arguments)
    assert "\n" not in str(caught.value)


def test_a_job_is_shown_without_what_moves_a_terminal() -> None:
    lease = cast.leased(max_attempts=1)
    cast.fail(lease, now=at(1), message="\x1b[2J\u202eboom")
    text = _run("jobs", "show", format_id(lease.job_id)) + _run("jobs", "list", "state:dead")
    assert "Dead letter: exhausted" in text
    assert "\\u001b[2J" in text
    assert "\x1b" not in text


def test_jobs_are_cancelled_hastened_and_revealed_with_a_reason() -> None:
    late, gone = cast.enqueue(now=None, delay_s=600, payload='"content"'), cast.enqueue(now=None)
    assert "is ready" in _run("jobs", "retry", format_id(late), "--reason", "they wait")
    assert "is cancelled" in _run("jobs", "cancel", format_id(gone), "--reason", "not wanted")
    assert '"content"' in _run("jobs", "reveal", format_id(late), "--reason", "asked for")
    found = cast.read("SELECT action, reason FROM tenants_auditentry WHERE actor LIKE 'cli:%%' ORDER BY id")
    assert found == [
        ("job.retry_now", "they wait"),
        ("job.cancel", "not wanted"),
        ("job.payload_shown", "asked for"),
    ]


def test_exports_go_to_the_standard_output() -> None:
    job_id = cast.enqueue()
    assert format_id(job_id) in _run("jobs", "export", "state:ready", "--format", "jsonl")
    assert _run("jobs", "export", "state:dead").startswith("job_id,tenant")
    assert "job.export" in _run("audit", "list", "--action", "job.export")
    assert _run("audit", "export", "--action", "job.export").count("job.export") == 2
