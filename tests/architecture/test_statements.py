"""Statement files: each used, each understood by the server, each with the words that Python has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections, transaction

from dlq import states as dlq_states
from jobqueue import states
from jobqueue.policy.breaker import BreakerState
from jobqueue.policy.types import State
from jobsplatform import sql
from tests import cast

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"jobqueue": ROOT / "queue" / "jobqueue", "dlq": ROOT / "dlq", "tenants": ROOT / "tenants"}
FILES = [(app, path) for app, folder in FOLDERS.items() for path in sorted((folder / "sql").glob("*.sql"))]
STATEMENTS = [f"{app}/{path.stem}" for app, path in FILES if not path.stem.startswith("_")]
FRAGMENTS = [(app, path) for app, path in FILES if path.stem.startswith("_")]
CODE = [
    path for folder in (*FOLDERS.values(), ROOT / "jobsplatform") for path in sorted(folder.rglob("*.py"))
]
SOURCE = "\n".join(path.read_text("utf-8") for path in CODE)


@pytest.mark.django_db
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_server_understands_each_statement(statement: str) -> None:
    """Every parameter is cast, every table and column exists where the statement runs."""
    alias = "default" if "\n-- database: control\n" in sql.text(statement).decode() else cast.SHARD
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("PREPARE understood AS " + sql._bound(statement).text.decode())
        cursor.execute("DEALLOCATE understood")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_parameter_is_cast_to_one_type_wherever_it_stands(statement: str) -> None:
    """What is sent for it is made for that type."""
    casts: dict[str, set[str]] = {}
    for name, cast_to in re.findall(r"%\((\w+)\)s(?:::(\w+(?:\[\])?))?", sql.text(statement).decode()):
        casts.setdefault(name, set()).add(cast_to)
    assert [name for name, to in casts.items() if len(to) > 1 or to == {""}] == []


@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_statement_is_used(statement: str) -> None:
    app, verb = statement.split("/")
    names = [f'"{statement}"'] + ([f'"{verb}"'] if app == "jobqueue" else [])
    assert any(name in SOURCE for name in names)


@pytest.mark.parametrize(("app", "path"), FRAGMENTS, ids=[f"{app}/{path.stem}" for app, path in FRAGMENTS])
def test_each_fragment_is_used(app: str, path: Path) -> None:
    name = path.stem.removeprefix("_")
    users = [
        other
        for other in path.parent.glob("*.sql")
        if re.search(rf"\{{(\w+\.)?{name}\}}", other.read_text("utf-8"))
    ]
    assert users


@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_statement_says_what_it_is(statement: str) -> None:
    first = sql.text(statement).decode().splitlines()[0]
    assert first.startswith(f"-- {statement.split('/')[1]}: ")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_reads_the_transaction_s_clock(statement: str) -> None:
    """`now()` stands still in a transaction; leases are judged by the clock that moves."""
    text = re.sub(r"--.*", "", sql.text(statement).decode())
    assert not re.search(
        r"\b(now\(\)|current_timestamp|transaction_timestamp|localtimestamp)", text, re.IGNORECASE
    )


# Words

STATE_WORDS = {
    word
    for choices in (
        states.State,
        states.WaitReason,
        states.AttemptOutcome,
        states.ResultOutcome,
        states.ErrorClass,
        states.DeadReason,
        states.OverlapPolicy,
        states.FireOutcome,
        dlq_states.CampaignState,
        dlq_states.RedriveOutcome,
        dlq_states.SkipReason,
    )
    for word in choices.values
} | set(BreakerState)
OTHER_WORDS = {
    "worker_crash",  # the error class of a lost lease, which no worker can say
    "message",  # the kind of the messages face
    "hex",
    "corrected",  # an event of a job's history; jobqueue.timeline knows it
    "server_version",
    "transaction_read_only",
    "hour",
    "minute",
    "second",
    "true",  # a setting of the transaction
    "epoch",
    # why an enqueue is refused; jobqueue.enqueue turns each into an error
    "intake_paused",
    "deadline_in_past",
    "due_after_deadline",
    "unadmitted",
    "misplaced",
    "depth",  # resources that a limit is of; jobqueue.shards.limited knows each
    "rate",
    "enqueue_rate_per_s",  # tenants.admission names what refuses
    # names of tables and sequences, asked for their statistics or moved on
    "queue_readyjob",
    "queue_scheduledjob",
    "queue_job_id_seq",
    # why a schedule's fire makes no job; jobqueue.schedules knows each
    "homeless",
    "repeated",
    "unchecked",
    "to",  # a member of a seal's details; tenants.audit writes it
    *State().to_json(),
    # faults that fsck names
    "nowhere",
    "several_places",
    "orphan",
    "generation_behind",
    "completed_twice",
    "completion_unrecorded",
    "attempts_exceeded",
    "wrong_lane",
    "hidden",
    "key_missing",
    "key_dangling",
    "correction_missing",
    "redrive_unrecorded",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_sql_has_no_word_that_python_does_not_know(statement: str) -> None:
    text = re.sub(r"--.*", "", sql.text(statement).decode())
    words = set(re.findall(r"(?<!nextval\()'([a-z_]+)'", text))
    assert words <= STATE_WORDS | OTHER_WORDS


def test_every_reason_and_outcome_is_written_by_some_statement() -> None:
    text = "\n".join(sql.text(statement).decode() for statement in STATEMENTS)
    written = set(re.findall(r"'([a-z_]+)'", text))
    for choices in (states.WaitReason, states.AttemptOutcome, states.ResultOutcome, states.DeadReason):
        assert set(choices.values) <= written


def test_every_refusal_of_an_enqueue_has_its_error() -> None:
    from jobqueue import enqueue

    judged = sql.text("jobqueue/enqueue").decode().split("judged AS", 1)[1].split("AS refusal", 1)[0]
    words = set(re.findall(r"THEN '(\w+)'", judged))
    assert words == set(enqueue._REFUSALS) | {enqueue.UNADMITTED, enqueue.UNCHECKED, enqueue.MISPLACED}


# No SQL is built from pieces


def _built(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("execute", "executemany", "raw", "extra", "send") or _is_composed(
            node.args[0]
        ):
            continue
        for part in ast.walk(node.args[0]):
            is_sum = isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Mod, ast.Add))
            is_text = isinstance(part, ast.JoinedStr) or (
                isinstance(part, ast.Attribute) and part.attr == "format"
            )
            if is_sum or is_text:
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def _is_composed(statement: ast.expr) -> bool:
    """`SQL("… {}").format(Identifier(name))`: the driver quotes what cannot be a parameter."""
    root = statement
    while isinstance(root, (ast.Call, ast.Attribute)):
        if isinstance(root, ast.Call) and ast.unparse(root.func) in ("SQL", "sql.SQL"):
            return isinstance(root.args[0], ast.Constant)
        root = root.func if isinstance(root, ast.Call) else root.value
    return False


def test_no_sql_is_built_from_strings() -> None:
    assert [fault for path in CODE for fault in _built(path)] == []


def test_statements_are_named_in_full_or_by_their_verb() -> None:
    """The one place that puts a name together is upkeep's, from words of its own."""
    assert len(re.findall(r'sql\.rows\(f"', SOURCE)) <= 1
