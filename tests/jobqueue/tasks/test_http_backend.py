"""`HttpBackend`: the sample site with a token and no database of the platform's, against a real server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from jobqueue import policies
from jobqueue.ids import parse_id
from jobqueue.tasks.framework import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from jobqueue.tasks.transport import Api
from jobsplatform.errors import (
    InsufficientScope,
    Invalid,
    QuotaExceeded,
    RequestKeyConflict,
    Unauthenticated,
    UnknownOutcome,
)
from tenants import access
from tenants import registry as tenants
from tests import cast
from tests.tasks_cast import Site, work

pytestmark = pytest.mark.django_db(transaction=True)

BACKEND = "jobqueue.tasks.HttpBackend"


def token(*scopes: str, **changes: Any) -> str:
    owner = changes.pop("tenant", cast.acme())
    return access.create_token(tenant=owner, scopes=scopes or ("produce", "read"), actor=cast.OPS)[1]


@pytest.fixture
def remote(site: Site, live_server: Any) -> Any:
    """`remote(**options)`: the site with an HttpBackend."""
    policies.push_by_name("default")

    def use(**options: Any) -> Site:
        site.use(BACKEND, **({"TENANT": None, "URL": live_server.url, "TOKEN": token()} | options))
        return site

    use()
    return use


def run(site: Site) -> None:
    """A worker elsewhere, with the platform's database and the site's tasks."""
    from jobqueue.tasks import QueueBackend
    from jobqueue.tasks.calls import kind_of
    from jobqueue.tasks.running import Runner

    backend = QueueBackend("default", {"QUEUES": [], "OPTIONS": {"TENANT": "acme"}})
    work({kind_of(path): Runner(path, backend) for path in backend.tasks()})


def jobs() -> int:
    return int(cast.read("SELECT count(*) FROM queue_job")[0][0])


def test_a_task_goes_there_and_its_value_comes_back(site: Site, remote: Any) -> None:
    result = site.tasks.add.enqueue(1, right=2)
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    run(site)
    result.refresh()
    assert (result.return_value, result.attempts) == (3, 1)


def test_a_result_is_as_the_database_s_backend_has_it(site: Site, remote: Any) -> None:
    ids = [
        site.tasks.order.using(max_attempts=1, priority=-7).enqueue("tea").id,
        site.tasks.add.enqueue(1, 2).id,
    ]
    run(site)
    there = [site.backend.get_result(name) for name in ids]
    site.use()
    here = [site.backend.get_result(name) for name in ids]
    assert there == here


def test_priority_time_and_extras_reach_the_job(site: Site, remote: Any) -> None:
    later = timezone.now() + timedelta(hours=1)
    task = site.tasks.urgent.using(run_after=later, request_key="k", dependency="smtp", max_attempts=3)
    job = cast.row("queue_job", parse_id(task.enqueue("x").id))
    assert (job["priority"], job["not_before"]) == (0, later)
    assert (job["request_key"], job["dependency"], job["max_attempts"]) == ("k", "smtp", 3)


@pytest.mark.parametrize("scopes", [("produce", "read"), ("produce",)], ids=" ".join)
def test_a_lost_answer_makes_no_second_job(
    site: Site, remote: Any, monkeypatch: pytest.MonkeyPatch, scopes: tuple[str, ...]
) -> None:
    """And the task is announced, for nobody else can have made it; a token that may not read is enough."""
    remote(TOKEN=token(*scopes))
    heard: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    task_enqueued.connect(receive)
    answer = Api._try
    lost: list[str] = []

    def losing(self: Api, method: str, path: str, body: str | None) -> Any:
        members = answer(self, method, path, body)
        if method == "POST" and not lost:
            lost.append(members["job_id"])
            raise UnknownOutcome(retry_after=None)
        return members

    monkeypatch.setattr(Api, "_try", losing)
    try:
        assert [site.tasks.add.enqueue(1, 2).id] == lost == heard
    finally:
        task_enqueued.disconnect(receive)
    assert jobs() == 1


def test_the_same_key_is_the_same_task_in_its_present_state(site: Site, remote: Any) -> None:
    task = site.tasks.add.using(request_key="once")
    first = task.enqueue(1, 2)
    run(site)
    again = task.enqueue(1, 2)
    assert (again.id, again.return_value) == (first.id, 3)


def test_refusals_are_the_platform_s_errors(site: Site, remote: Any) -> None:
    site.tasks.add.using(request_key="once").enqueue(1, 2)
    with pytest.raises(RequestKeyConflict):
        site.tasks.add.using(request_key="once").enqueue(1, 3)
    with pytest.raises(Invalid, match="/queue"):
        site.tasks.add.using(queue_name="nowhere").enqueue(1, 2)
    tenants.set_quota("acme", {"max_depth": 1}, actor=cast.OPS)
    with pytest.raises(QuotaExceeded):
        site.tasks.add.enqueue(1, 2)


def test_a_token_that_may_not_is_told(site: Site, remote: Any) -> None:
    remote(TOKEN=token("read"))
    with pytest.raises(InsufficientScope):
        site.tasks.add.enqueue(1, 2)
    remote(TOKEN="jp_none")
    with pytest.raises(Unauthenticated):
        site.tasks.add.enqueue(1, 2)


def test_a_fleet_token_names_the_tenant(site: Site, remote: Any) -> None:
    globex = cast.globex()
    remote(TOKEN=token(tenant=None), TENANT="globex")
    result = site.tasks.add.enqueue(1, 2)
    assert cast.row("queue_job", parse_id(result.id))["tenant_id"] == globex.pk


def test_another_tenant_s_task_does_not_exist(site: Site, remote: Any) -> None:
    result = site.tasks.add.enqueue(1, 2)
    remote(TOKEN=token(tenant=cast.globex()))
    with pytest.raises(TaskResultDoesNotExist):
        site.backend.get_result(result.id)


def test_an_id_cannot_lead_elsewhere(site: Site, remote: Any) -> None:
    for name in ("../tenant", "0-1/result", "0-1?include=payload", ""):
        with pytest.raises(TaskResultDoesNotExist):
            site.backend.get_result(name)


def test_on_commit_waits_for_the_caller_s_commit(site: Site, remote: Any) -> None:
    remote(ON_COMMIT=True)
    with transaction.atomic(using="default"):
        result = site.tasks.add.enqueue(1, 2)
        assert (result.id, jobs()) == ("", 0)
    assert cast.place(parse_id(result.id)) == "readyjob"


def test_what_no_worker_would_find_is_refused_before_it_is_sent(site: Site, remote: Any) -> None:
    remote(MODULES=["tests.tasks_site"])
    with pytest.raises(InvalidTask):
        site.tasks.add.enqueue(1, 2)


def test_url_and_token_are_asked_for(site: Site, remote: Any) -> None:
    remote(URL="", TOKEN="")
    assert [message.id for message in site.backend.check()] == ["queue.E012", "queue.E012"]
