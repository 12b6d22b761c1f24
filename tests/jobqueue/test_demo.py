"""The demo: prepared once, small for ever, and handlers that read nothing they may not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobqueue import Permanent, Release, Transient, demo, handlers, policies
from jobqueue.models import Job, ReadyJob, ScheduledJob
from jobqueue.receiver import Receiver
from tenants import members, registry
from tenants.models import Quota, Tenant
from tests.cast import OPS, SHARD
from tests.portal_cast import client_of


def _job(payload: Any = None, **more: Any) -> Any:
    values = {"attempt": 1, "tenant": "acme", "operation_id": "0-1", "cancelled": False, "lease_lost": False}
    return SimpleNamespace(payload=payload, payload_text="{}", **{**values, **more})


# Preparing and flowing


@pytest.mark.django_db
def test_preparing_twice_is_preparing_once() -> None:
    demo.prepare()
    jobs = Job.objects.using(SHARD).count()
    registry.set_quota(demo.LIMITED, {"max_running": 5}, actor=OPS)
    demo.prepare()
    assert set(Tenant.objects.values_list("slug", flat=True)) == set(demo.TENANTS)
    assert [policies.by_name(name).name for name in demo.QUEUES] == list(demo.QUEUES)
    assert Job.objects.using(SHARD).count() == jobs
    quota = Quota.objects.get()
    assert (quota.max_running, quota.max_depth) == (5, 200)


@pytest.mark.django_db
def test_the_operator_may_look_at_the_demo_s_tenants_until_somebody_takes_that_away() -> None:
    client = client_of("operator")
    assert "/t/acme/" in demo.prepare("operator")
    for slug in demo.TENANTS:
        assert client.get(f"/t/{slug}/").status_code == 200
        assert client.get(f"/t/{slug}/tokens/").status_code == 200
    members.remove_member("acme", "operator", actor=OPS)
    demo.prepare("operator")
    assert client.get("/t/acme/").status_code == 404


@pytest.mark.django_db
def test_the_first_jobs_show_every_end() -> None:
    demo.prepare()
    kinds = set(Job.objects.using(SHARD).values_list("kind", flat=True))
    assert kinds >= {"text.index", "http.call", "demo.flaky", "demo.invalid", "demo.crash"}


@pytest.mark.django_db
def test_the_flow_stays_small_when_nobody_works() -> None:
    demo.prepare()
    flow = demo.Flow()
    for _ in range(400):
        flow.run()
    waiting = ReadyJob.objects.using(SHARD).count() + ScheduledJob.objects.using(SHARD).count()
    assert 100 < waiting <= 200


@pytest.mark.django_db
def test_dead_letters_come_once_an_hour() -> None:
    demo.prepare()
    flow = demo.Flow()
    for _ in range(400):
        flow.run()
    doomed = Job.objects.using(SHARD).filter(kind="demo.invalid")
    assert doomed.count() <= 3  # the first, this hour's, and the next hour's if it began meanwhile


# text.index


@pytest.mark.parametrize(
    ("data", "words", "lines"),
    [
        (b"", 0, 0),
        (b"a b\nc", 3, 2),
        (b"a b\nc\n", 3, 2),
        ("Grüße an\u2003alle\n".encode(), 3, 1),
        (b"\xff\x00", 1, 1),
    ],
)
def test_a_text_is_indexed_by_its_content(data: bytes, words: int, lines: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    payload = {"path": str(file), "grant": handlers.grant(file.resolve())}
    assert handlers.index_text(_job(payload)) == {
        "words": words,
        "lines": lines,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def test_a_text_or_base64_in_the_payload_is_indexed() -> None:
    assert handlers.index_text(_job({"text": "a b"})) == handlers.index_text(_job({"base64": "YSBi"}))


@pytest.mark.parametrize(
    "payload",
    [None, [], "x", {}, {"text": 1}, {"path": 1}, {"base64": "x"}, {"path": "a\0b"}, {"path": "docs"}],
)
def test_other_payloads_are_refused_for_good(payload: Any) -> None:
    with pytest.raises(Permanent):
        handlers.index_text(_job(payload))


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "docs/../manage.py", ".data/secret_key", "/no/such/file", "docs/../../x", "README.mdx"],
)
def test_files_outside_the_folders_are_refused_without_a_hint(name: str) -> None:
    with pytest.raises(Permanent, match="outside the folders"):
        handlers.index_text(_job({"path": name}))


def test_the_repositorys_documents_are_open_to_all() -> None:
    assert demo.documents()
    result = handlers.index_text(_job({"path": demo.documents()[0]}))
    assert int(str(result["words"])) > 0


def test_a_link_out_of_the_folder_is_followed_before_it_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "open"
    folder.mkdir()
    secret.write_text("x")
    (folder / "link").symlink_to(secret)
    monkeypatch.setattr(handlers, "folders", lambda: [folder.resolve()])
    with pytest.raises(Permanent, match="outside the folders"):
        handlers.index_text(_job({"path": str(folder / "link")}))


def test_a_grant_opens_one_file_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    for granted in (handlers.grant(one.resolve()), handlers.grant(two.resolve()) + "x", "x", None, 1):
        with pytest.raises(Permanent, match="outside the folders"):
            handlers.index_text(_job({"path": str(two), "grant": granted}))


# http.call


@pytest.fixture
def receiver(tmp_path: Path, settings: Any) -> Iterator[Receiver]:
    settings.DATA = tmp_path
    server = Receiver()
    server.start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_receiver_acts_once_per_operation(receiver: Receiver) -> None:
    answers = [handlers.call_http(_job({}, operation_id="0-7")) for _ in range(3)]
    assert answers == [{"operation_id": "0-7", "effects": 1, "calls": n} for n in (1, 2, 3)]
    assert (demo.receiver_file().stat().st_mode & 0o777) == 0o600


def test_a_receiver_that_is_away_is_tried_again(receiver: Receiver) -> None:
    demo.forget_receiver()
    with pytest.raises(Transient):
        handlers.call_http(_job({}))


# The ways in which jobs fail


def test_an_invalid_payload_can_be_corrected() -> None:
    with pytest.raises(Permanent):
        handlers.fail_permanently(_job({"valid": False}))
    assert handlers.fail_permanently(_job({"valid": True})) == {"valid": True}


def test_a_flaky_job_succeeds_at_the_third_attempt() -> None:
    for attempt in (1, 2):
        with pytest.raises(Transient):
            handlers.fail_twice(_job({}, attempt=attempt))
    assert handlers.fail_twice(_job({}, attempt=3)) == {"attempt": 3}


def test_only_the_demos_tenants_may_kill_a_worker() -> None:
    with pytest.raises(Permanent):
        handlers.crash(_job({}, tenant="customer"))


def test_a_sleeper_stops_when_it_is_cancelled() -> None:
    with pytest.raises(Release):
        handlers.sleep(_job({"seconds": 100}, cancelled=True))
    assert handlers.sleep(_job({"seconds": 0})) == {"slept_s": 0}


@pytest.mark.parametrize("seconds", [-1, True, "1", 10**9, float("nan"), None])
def test_a_sleeper_sleeps_a_sensible_time(seconds: Any) -> None:
    with pytest.raises(Permanent):
        handlers.sleep(_job({"seconds": seconds}))
