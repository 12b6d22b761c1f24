"""`manage.py dlq …`: the desk on the command line, by the same verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq import pacing
from dlq.models import Campaign
from jobqueue import reads
from jobqueue.ids import format_id
from jobqueue.types import FLEET
from tests import cast
from tests.cast import acme, at, globex
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def _dlq(*arguments: str) -> str:
    ran = run("dlq", *arguments)
    assert ran.code == 0, ran
    return ran.out


def _name(job_id: int) -> str:
    return format_id(job_id)


def test_list_is_newest_first_and_narrowed() -> None:
    one = cast.buried(now=at(0))
    two = cast.buried(now=at(9), kind="odd", error_class="permanent", tenant_id=globex().pk)
    lines = _dlq("list").splitlines()
    assert [line.split()[0] for line in lines[:2]] == [_name(two), _name(one)]
    assert "invalid (correct first)  permanent: boom 17" in lines[0]
    assert lines[2] == "2 shown."
    for narrowed in (["--kind", "odd"], ["--reason", "invalid"], ["--tenant", "globex"]):
        assert _dlq("list", *narrowed).splitlines()[-1] == "1 shown."
    assert _dlq("list", "--limit", "1").splitlines()[-1] == "1 shown, there are more."
    assert _dlq("list", "--failed-before", "2035-05-04T12:00:05Z").splitlines()[-1] == "1 shown."


def test_groups_and_growth() -> None:
    cast.graveyard(3)
    (line, last) = _dlq("groups").splitlines()
    assert line.split()[1] == "3"
    assert line.endswith("noop: boom")
    assert last == "1 group shown."
    assert _dlq("growth") == ""


def test_show_masks_the_payload() -> None:
    job_id = cast.buried(payload='"tell nobody"')
    cast.correct(job_id, note="first\ntry", payload='"new"')
    out = _dlq("show", _name(job_id))
    assert "5 bytes, SHA-256" in out
    assert "tell nobody" not in out
    assert "correction 1" in out
    assert "first try" in out


def test_correct_then_redrive() -> None:
    job_id = cast.buried(error_class="permanent")
    assert "must be corrected before" in refused("dlq", "redrive", _name(job_id), "--note", "n")
    assert _dlq("correct", _name(job_id), "--note", "typo", "--payload", '{"amount": 1.10}').startswith(
        "Version 1"
    )
    out = _dlq("redrive", _name(job_id), "--note", "corrected", "--key", "t-7", "--max-attempts", "9")
    assert "is ready again (redrive 1, audit shard0-" in out
    assert "was made ready by this key before" in _dlq(
        "redrive", _name(job_id), "--note", "corrected", "--key", "t-7", "--max-attempts", "9"
    )
    lease = cast.claim_one(now=None)
    assert lease.payload == '{"amount": 1.10}'
    actors = cast.read(
        "SELECT DISTINCT split_part(actor, ':', 1) FROM tenants_auditentry WHERE action LIKE 'job.%%'"
    )
    assert actors == [("cli",)]


def test_a_payload_may_come_from_a_file(tmp_path: Path) -> None:
    job_id = cast.buried()
    file = tmp_path / "payload.json"
    file.write_text('{"a": 1}\n')
    _dlq("correct", _name(job_id), "--note", "n", "--payload-file", str(file))
    assert reads.payload(job_id, scope=FLEET)[0] == '{"a": 1}'
    assert "cannot be read" in refused(
        "dlq", "correct", _name(job_id), "--note", "n", "--payload-file", str(tmp_path / "none")
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["correct", "{job}", "--note", "n"], "Give one of"),
        (["correct", "{job}", "--note", "n", "--payload", "{{"], "must be JSON"),
        (["correct", "{job}", "--note", " ", "--payload", "1"], "must say why"),
        (["redrive", "{job}", "--note", " "], "must say why"),
        (["redrive", "{job}", "--note", "n", "--deadline", "soon"], "no instant"),
        (["redrive", "{job}", "--note", "n", "--max-attempts", "0"], "1 to 100"),
        (["redrive", "0-99999", "--note", "n"], "no such thing"),
        (["show", "x"], "no such thing"),
        (["list", "--limit", "0"], "1 to 200"),
        (["list", "--queue", "nowhere"], "no queue"),
        (["list", "--tenant", "nobody"], "no tenant"),
        (["campaign", "create", "--note", "n"], "at least one condition"),
        (["campaign", "create", "--reason", "invalid"], "must say why"),
        (["campaign", "create", "--kind", "", "--note", "n"], "is empty"),
        (["campaign", "create", "--fingerprint", " ", "--note", "n"], "is empty"),
        (["campaign", "create", "--reason", "invalid", "--note", "n", "--rate", "201"], "between 1 and 200"),
        (
            ["campaign", "create", "--reason", "invalid", "--note", "n", "--stop-at", "0"],
            "between 0.01 and 1",
        ),
        (["campaign", "show", "77"], "no such thing"),
        (["fork", "{job}", "--note", " ", "--request-key", "k"], "must say why"),
        (["fork", "{job}", "--note", "n", "--request-key", "k" * 256], "1 to 255 characters"),
        (["fork", "{job}", "--note", "n", "--request-key", "a\nb"], "control"),
        (["redrive", "{job}", "--note", "n", "--key", "k" * 256], "1 to 255 characters"),
        (["correct", "{job}", "--note", "n", "--payload-ref", ""], "1 to 2,048 characters"),
        (["correct", "{job}", "--note", "n", "--payload-ref", "x" * 2_049], "1 to 2,048 characters"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], word: str) -> None:
    job_id = cast.buried()
    with cast.changes_nothing(job_id):
        line = refused("dlq", *(argument.format(job=_name(job_id)) for argument in arguments))
    assert word in line
    assert not Campaign.objects.exists()


def test_fork_makes_a_new_operation() -> None:
    job_id = cast.buried()
    out = _dlq("fork", _name(job_id), "--note", "a new order", "--request-key", "new")
    made = out.split()[1]
    assert out == f"Job {made} is a new operation made from {_name(job_id)}.\n"
    assert reads.job(int(made.split("-")[1]), scope=FLEET).request_key == "new"


def test_a_campaign_from_its_dry_run_to_its_end() -> None:
    long_ago = at(0).replace(year=2025)
    cast.graveyard(3, now=long_ago)
    cast.graveyard(2, now=long_ago, error_class="permanent")
    filtered = ["--tenant", "acme", "--kind", "noop"]
    assert _dlq("campaign", "create", *filtered, "--dry-run") == (
        "5 match: 3 would be redriven, 2 correction_required.\n"
    )
    out = _dlq("campaign", "create", *filtered, "--note", "back", "--canary", "0", "--rate", "100")
    made = Campaign.objects.get()
    assert (made.tenant_id, made.kind, made.rate_per_s) == (acme().pk, "noop", 100)
    assert out == f"Campaign {made.pk} is running: 0 of 5 redriven; 0 succeeded, 0 failed, about 1 s left.\n"
    assert "is paused" in _dlq("campaign", "pause", str(made.pk), "--note", "lunch")
    assert "is running" in _dlq("campaign", "resume", str(made.pk))
    pacing.advance(now=at(0))
    shown = f"Campaign {made.pk} is done: 3 of 5 redriven, 2 correction_required; 0 succeeded, 0 failed.\n"
    assert _dlq("campaign", "show", str(made.pk)) == _dlq("campaign", "list") == shown
    assert "has ended" in refused("dlq", "campaign", "abort", str(made.pk))


def test_unknown_flags_are_not_guessed() -> None:
    job_id = cast.buried()
    ran = run("dlq", "redrive", _name(job_id), "--not", "x", "--note", "n")
    assert ran.code != 0
    assert cast.place(job_id) == "deadletter"
