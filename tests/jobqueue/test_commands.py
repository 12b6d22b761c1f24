"""Commands about queues, quotas and jobs: thin edges over the verbs, with the rules of the API."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from jobqueue import following, policies, reads
from jobqueue.ids import parse_id
from jobqueue.models import Job, PolicyRow, Queue, ReadyJob
from jobqueue.types import FLEET
from tenants import registry
from tenants.models import AuditEntry, Quota, TenantLimit, TenantState
from tests import cast
from tests.cast import OPS, SHARD, acme
from tests.commands_cast import refused, run, run_apart

pytestmark = pytest.mark.django_db


def _policy(name: str) -> PolicyRow:
    return PolicyRow.objects.using(SHARD).get(name=name)


# Queues


def test_createqueue_takes_a_preset_and_settings() -> None:
    ran = run(
        "createqueue",
        "mail",
        "--preset",
        "hnl",
        "--set",
        "lease_s=45",
        "max_releases=none",
        "--set",
        "backoff_base_s=0.5",
    )
    assert ran.code == 0
    assert "H, N, L" in ran.out
    queue = policies.by_name("mail")
    assert (queue.lease_s, queue.max_releases, queue.backoff_base_s, queue.default_priority) == (
        45,
        None,
        0.5,
        1,
    )
    assert _policy("mail").lease_s == 45
    assert AuditEntry.objects.get(target="queue:mail").actor.startswith("cli:")


@pytest.mark.parametrize("name", sorted(policies.SETTABLE))
def test_createqueue_knows_every_setting_of_the_contract(name: str) -> None:
    default = {
        "age_objective_s": '{"P0": 1}',
        "retention_s": "3600",
        "reserved_share": "0.1",
        "retry_budget_share": "1",
        "cost_model": "service_time",
        "refuse_infeasible": "true",
    }.get(name, "60")
    assert run("createqueue", "mail", "--set", f"{name}={default}").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("Mail",),
        ("mail", "--preset", "six"),
        ("mail", "--set", "lease_s"),
        ("mail", "--set", "lease_s="),
        ("mail", "--set", "lease_s=0"),
        ("mail", "--set", "lease_s=43201"),
        ("mail", "--set", "lease_s=1.5"),
        ("mail", "--set", "lease_s=none"),
        ("mail", "--set", "lease_s=9" + "9" * 30),
        ("mail", "--set", "lease_s=1", "lease_s=2"),
        ("mail", "--set", "backoff_base_s=nan"),
        ("mail", "--set", "backoff_base_s=inf"),
        ("mail", "--set", "age_objective_s={"),
        ("mail", "--set", "name=x"),
        ("mail", "--set", "bands=[]"),
        ("mail", "--set", "is_dispatch_paused=true"),
        ("mail", "--set", "version=9"),
    ],
    ids=" ".join,
)
def test_createqueue_refuses_wrong_input_with_one_line(arguments: tuple[str, ...]) -> None:
    refused("createqueue", *arguments)
    assert not Queue.objects.filter(name__iexact="mail").exists()


def test_createqueue_refuses_a_taken_name() -> None:
    cast.queue("mail")
    assert "already exists" in refused("createqueue", "mail")


@pytest.mark.parametrize(("what", "field"), [("queue", "is_dispatch_paused"), ("intake", "is_intake_paused")])
def test_pause_and_resume_reach_the_shard(what: str, field: str) -> None:
    cast.queue("mail")
    assert run("pause", what, "mail", "--reason", "too hot").code == 0
    assert getattr(_policy("mail"), field) is True
    assert AuditEntry.objects.order_by("-pk")[0].reason == "too hot"
    assert run("resume", what, "mail").code == 0
    assert getattr(_policy("mail"), field) is False


def test_a_tenant_is_paused_and_resumed() -> None:
    acme()
    assert run("pause", "tenant", "acme").code == 0
    assert TenantState.objects.using(SHARD).get(tenant_id=acme().pk).is_paused
    assert run("resume", "tenant", "acme").code == 0
    assert not TenantState.objects.using(SHARD).get(tenant_id=acme().pk).is_paused


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("what", ["queue", "tenant", "intake", "world"])
def test_what_there_is_not_is_neither_paused_nor_resumed(verb: str, what: str) -> None:
    refused(verb, what, "nope")


# Quotas


def test_setquota_sets_and_lifts_limits() -> None:
    acme()
    assert run("setquota", "acme", "max_running=2", "max_depth=200").code == 0
    assert TenantLimit.objects.using(SHARD).get(tenant_id=acme().pk).max_running == 2
    assert run("setquota", "acme", "max_running=none").code == 0
    quota = Quota.objects.get()
    assert (quota.max_running, quota.max_depth) == (None, 200)


@pytest.mark.parametrize("band", ["1", "P1"])
def test_setquota_takes_a_band_by_index_or_name(band: str) -> None:
    acme(), cast.queue("mail")
    assert run("setquota", "acme", "--queue", "mail", "--band", band, "weight=3").code == 0
    quota = Quota.objects.get()
    assert (quota.queue, quota.band, quota.weight) == ("mail", 1, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nope", "weight=1"),
        ("acme",),
        ("acme", "weight"),
        ("acme", "weight=0"),
        ("acme", "max_depth=-1"),
        ("acme", "enqueue_rate_per_s=0"),
        ("acme", "enqueue_rate_per_s=nan"),
        ("acme", "tenant=2"),
        ("acme", "--band", "1", "weight=1"),
        ("acme", "--queue", "nope", "weight=1"),
        ("acme", "--queue", "default", "--band", "5", "weight=1"),
        ("acme", "--queue", "default", "--band", "P9", "weight=1"),
    ],
    ids=" ".join,
)
def test_setquota_refuses_wrong_input_with_one_line(arguments: tuple[str, ...]) -> None:
    acme(), cast.queue()
    refused("setquota", *arguments)
    assert not Quota.objects.exists()


# Enqueue


def _only_job() -> Job:
    return Job.objects.using(SHARD).get()


def test_enqueue_keeps_the_payload_digit_for_digit() -> None:
    acme(), cast.queue()
    ran = run("enqueue", "--tenant", "acme", "--kind", "mail.send", "--priority", "P1", '{"a":  1.10}')
    assert (ran.code, ran.err) == (0, "")
    job = _only_job()
    assert ran.out.split() == [str(job), "accepted"]
    assert (job.payload, job.kind, job.priority, job.tenant_id) == ('{"a":  1.10}', "mail.send", 1, acme().pk)


def test_a_payload_may_be_named_by_its_flag() -> None:
    acme(), cast.queue()
    assert run("enqueue", "--tenant", "acme", "--kind", "x", "--payload", '{"a": 1}').code == 0
    assert (_only_job().payload, _only_job().payload_ref) == ('{"a": 1}', None)


def test_a_flag_cut_short_is_no_flag() -> None:
    acme(), cast.queue()
    assert "--payload-r" in refused("enqueue", "--tenant", "acme", "--kind", "x", "--payload-r", "s3://x")


def test_a_request_key_names_one_job() -> None:
    acme(), cast.queue()
    arguments = ("enqueue", "--tenant", "acme", "--kind", "x", "--request-key", "k")
    first, again = run(*arguments, "1"), run(*arguments, "1")
    assert again.out == first.out.replace("accepted", "replayed")
    assert "other content" in refused(*arguments, "2")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tenant", "nope", "--kind", "x", "1"),
        ("--tenant", "acme", "1"),
        ("--tenant", "acme", "--kind", "Bad Kind", "1"),
        ("--tenant", "acme", "--kind", "x", "text"),
        ("--tenant", "acme", "--kind", "x", '{"a": 1, "a": 2}'),
        ("--tenant", "acme", "--kind", "x", '"' + "x" * 131_071 + '"'),
        ("--tenant", "acme", "--kind", "x", "--queue", "nope", "1"),
        ("--tenant", "acme", "--kind", "x", "--priority", "9", "1"),
        ("--tenant", "acme", "--kind", "x", "--delay-s", "soon", "1"),
        ("--tenant", "acme", "--kind", "x", "--delay-s", "1", "--not-before", "2040-01-01T00:00:00Z", "1"),
        ("--tenant", "acme", "--kind", "x", "--deadline", "2001-01-01T00:00:00Z", "1"),
        ("--tenant", "acme", "--kind", "x", "--payload-ref", "s3://x", "1"),
        ("--tenant", "acme", "--kind", "x", "--file", "no-such-file"),
        ("--tenant", "acme", "--kind", "x", "--each-file", "no-such-folder"),
        ("--tenant", "acme", "--kind", "x", "--file", "a", "1"),
        ("--tenant", "acme", "--kind", "x", "--payload", "1", "2"),
        ("--tenant", "acme", "--kind", "x", "--payload", "1", "--file", "a"),
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_enqueue_refuses_wrong_input_with_one_line(arguments: tuple[str, ...]) -> None:
    acme(), cast.queue()
    refused("enqueue", *arguments)
    assert not Job.objects.using(SHARD).exists()


def test_a_suspended_tenant_puts_nothing_in() -> None:
    acme(), cast.queue()
    registry.suspend("acme", actor=OPS)
    assert "suspended" in refused("enqueue", "--tenant", "acme", "--kind", "x", "1")


def test_lines_stand_each_alone_and_flags_fill_in(tmp_path: Path) -> None:
    acme(), cast.queue()
    lines = [
        '{"kind": "a", "payload": 1}',
        "",
        '{"payload": 2}',
        '{"kind": "c"}',
        "{",
        '{"payload": 3, "x": 1}',
    ]
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(lines))
    ran = run("enqueue", "--tenant", "acme", "--kind", "b", "--file", str(file))
    assert ran.code == 1
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["line 4", "line 5", "line 6"]
    assert ran.out.splitlines()[-1] == "2 accepted, 3 refused"
    assert list(Job.objects.using(SHARD).order_by("pk").values_list("kind", "payload")) == [
        ("a", "1"),
        ("b", "2"),
    ]


def test_a_line_that_is_too_long_does_not_spoil_the_next(tmp_path: Path) -> None:
    acme(), cast.queue()
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"kind": "a", "payload": "' + "x" * 600_000 + '"}\n{"kind": "b", "payload": 1}\n')
    ran = run("enqueue", "--tenant", "acme", "--file", str(file))
    assert ran.err.startswith("line 1: A line has at most")
    assert _only_job().kind == "b"


def test_each_file_is_one_job_with_the_files_content(tmp_path: Path) -> None:
    acme(), cast.queue()
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("Grüße\n")
    (tmp_path / "sub" / "b.bin").write_bytes(b"\x00\xff")
    (tmp_path / "large.txt").write_text("x" * 140_000)
    (tmp_path / ".hidden").write_text("no")
    ran = run("enqueue", "--tenant", "acme", "--kind", "text.index", "--each-file", str(tmp_path))
    assert ran.out.splitlines()[-1] == "3 accepted"
    text, large, binary = (
        json.loads(p or "") for p in Job.objects.using(SHARD).order_by("pk").values_list("payload", flat=True)
    )
    assert text == {"name": "a.txt", "text": "Grüße\n"}
    assert binary == {"name": "sub/b.bin", "base64": "AP8="}
    assert large["path"] == str(tmp_path / "large.txt")


@pytest.mark.django_db(transaction=True)
def test_enqueue_waits_for_the_results_of_each_file(
    tmp_path: Path, process_environment: dict[str, str]
) -> None:
    import threading

    acme(), cast.queue("docs")
    (tmp_path / "a.txt").write_text("one two\nthree\n")
    (tmp_path / "large.txt").write_text("word " * 40_000)
    answers = []
    arguments = (
        "enqueue",
        "--tenant",
        "acme",
        "--queue",
        "docs",
        "--kind",
        "text.index",
        "--each-file",
        str(tmp_path),
        "--wait",
    )
    waiter = threading.Thread(target=lambda: answers.append(run_apart(process_environment, *arguments)))
    waiter.start()
    while waiter.is_alive():
        worked = run_apart(
            process_environment, "runworker", "--once", "--queues", "docs", "--concurrency", "2"
        )
        assert worked.code == 0, worked
        waiter.join(0.5)
    (ran,) = answers
    assert (ran.code, ran.err) == (0, "")
    *lines, summary = ran.out.splitlines()
    assert summary == "2 accepted, 2 succeeded"
    results = {line.split()[2]: json.loads(line.split(" ", 3)[3]) for line in lines}
    digest = hashlib.sha256((tmp_path / "a.txt").read_bytes()).hexdigest()
    assert results["a.txt"] == {"words": 3, "lines": 2, "bytes": 14, "sha256": digest}
    assert results["large.txt"]["words"] == 40_000


@pytest.mark.django_db(transaction=True)
def test_a_shell_sees_lines_from_stdin(process_environment: dict[str, str]) -> None:
    acme(), cast.queue()
    ran = run_apart(
        process_environment, "enqueue", "--tenant", "acme", stdin=b'{"kind": "a", "payload": 1}\n'
    )
    assert (ran.code, ran.err) == (0, "")
    assert reads.job(parse_id(ran.out.split()[0]), scope=FLEET).state == "ready"
    nothing = run_apart(process_environment, "enqueue", "--tenant", "acme")
    assert (nothing.code, nothing.out, nothing.err.count("\n")) == (1, "", 1)
    wrong = run_apart(process_environment, "pause", "world", "x")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)


# fsck


def test_fsck_names_each_fault() -> None:
    assert run("fsck") == (0, "No faults.\n", "")
    job_id = cast.enqueue(now=cast.at(0))
    ReadyJob.objects.using(SHARD).filter(job_id=job_id).delete()
    ran = run("fsck", "--json")
    assert (ran.code, [fault["fault"] for fault in json.loads(ran.out)["faults"]]) == (1, ["nowhere"])


@pytest.mark.django_db(transaction=True)
def test_fsck_of_a_lost_database_is_one_line(process_environment: dict[str, str]) -> None:
    lost = process_environment | {"JOBSPLATFORM_DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    ran = run_apart(lost | {"JOBSPLATFORM_SHARDS": "", "JOBS_POOL_WAIT_SECONDS": "2"}, "fsck")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)


# Following


def test_following_tells_each_end_once() -> None:
    done = cast.leased(now=cast.at(0))
    cast.complete(done, now=cast.at(1), result='{"a": 1}')
    dead = cast.buried(now=cast.at(2), error_class="permanent")
    gone = cast.enqueue()
    cast.cancel(gone)
    endings = {
        e.job_id: (e.state, e.detail, e.succeeded)
        for e in following.follow([done.job_id, dead, gone, dead], scope=FLEET)
    }
    assert endings == {
        done.job_id: ("succeeded", '{"a": 1}', True),
        dead: ("dead", "invalid: boom 17", False),
        gone: ("cancelled", "", False),
    }
