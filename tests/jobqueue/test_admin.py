"""The admin's screens of the queue: every page answers without counting; what changes goes through the verbs."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.db.models import Model
from django.urls import reverse

from jobqueue import desk, policies, reads
from jobqueue.admin.jobs import job_url
from jobqueue.ids import format_id
from jobqueue.models import Job, PolicyRow, Queue
from jobqueue.types import FLEET
from jobsplatform import adminsite
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import SHARD, at

pytestmark = pytest.mark.django_db

OURS = [model for model in admin.site._registry if model._meta.app_label in ("queue", "dlq", "tenants")]


def _list_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def _one_of_each() -> dict[str, int]:
    """A job in each place, and something in most other tables."""
    done = cast.leased(payload='{"secret": "payload-text"}', request_key="k-1")
    cast.complete(done, now=at(1), result='"result-text"')
    dead = cast.buried(now=at(2))
    cast.correct(dead)
    running = cast.leased(now=at(3))
    waiting = {"ready": cast.enqueue(now=at(4)), "scheduled": cast.enqueue(now=at(4), delay_s=60)}
    return {"done": done.job_id, "dead": dead, "running": running.job_id, **waiting}


def test_the_first_page_shows_where_jobs_stand() -> None:
    _one_of_each()
    text = page(admin_cast.operator(), "/admin/")
    for state in ("running", "ready", "scheduled", "dead"):
        assert re.search(rf'card-{state}" href="[^"]+"><strong>1</strong>', text), state


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_list_and_every_row_has_a_page(model: type[Model]) -> None:
    _one_of_each()
    client = admin_cast.operator()
    text = page(client, _list_of(model))
    for address in re.findall(r'<th class="field-[^"]*"><a href="([^"]+)"', text)[:3]:
        page(client, address.replace("&amp;", "&"))


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_pages_to_add_answer_where_adding_is_possible(model: type[Model]) -> None:
    client = admin_cast.operator()
    response = client.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add"))
    editable = {
        "ApiToken",
        "Dependency",
        "JobKind",
        "Queue",
        "Schedule",
        "Tenant",
    }
    assert response.status_code == (200 if model.__name__ in editable else 403)
    admin_cast.checked(response)


@pytest.mark.parametrize("name", ["queue_attempt", "queue_laneminute", "dlq_redrive"])
def test_models_with_two_keys_have_lists_too(name: str) -> None:
    cast.redriven(_one_of_each()["dead"], now=at(10))
    page(admin_cast.operator(), reverse(f"admin:{name}_changelist"))


@pytest.mark.parametrize("state", ["done", "dead", "running", "ready", "scheduled"])
def test_a_jobs_page_tells_its_state_and_hides_its_content(state: str) -> None:
    job_id = _one_of_each()[state]
    text = page(admin_cast.operator(), job_url(job_id))
    view = reads.job(job_id, scope=FLEET)
    assert f'state-{view.state}">' in text
    assert str(view.payload_sha256) in text
    for secret in ("payload-text", "result-text"):
        assert secret not in text


@pytest.mark.parametrize(
    ("state", "name"),
    [("done", "result"), ("running", "lease"), ("ready", "readyjob"), ("scheduled", "scheduledjob")],
)
def test_a_place_has_a_page_of_its_own_without_content_or_token(state: str, name: str) -> None:
    job_id = _one_of_each()[state]
    text = page(admin_cast.operator(), reverse(f"admin:queue_{name}_change", args=[format_id(job_id)]))
    assert "noop" in text
    assert "result-text" not in text
    assert "field-token" not in text


@pytest.mark.parametrize("address", ["0-999", "1-5", "x", "0", "9" * 30])
def test_a_job_that_there_is_not_has_no_page(address: str) -> None:
    response = admin_cast.operator().get(reverse("admin:queue_job_change", args=[address]))
    assert response.status_code == 302  # Django's way: a message, and the first page


def test_a_job_cannot_be_changed_or_deleted() -> None:
    client, job_id = admin_cast.operator(), cast.enqueue()
    with cast.changes_nothing(job_id):
        assert client.post(job_url(job_id), {"kind": "x"}).status_code == 403
        assert client.post(job_url(job_id).replace("change", "delete"), {"post": "yes"}).status_code == 403


def test_lists_go_on_below_the_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "ROWS", 4)
    ids = [format_id(job_id) for job_id in cast.enqueue_many(10)]
    client = admin_cast.operator()
    seen, query = [], ""
    while True:
        text = page(client, _list_of(Job) + query)
        seen += re.findall(r'<th scope="row"><a [^>]*>([^<]+)<', text)
        following = re.search(r'href="(\?before=[^"]+)" rel="next"', text)
        if following is None:
            break
        query = following[1].replace("&amp;", "&")
    assert seen == ids[::-1]


def test_attempts_go_on_below_the_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adminsite, "ROWS", 2)
    for second in range(5):
        cast.complete(cast.leased(now=at(second)), now=at(second))
    client, address = admin_cast.operator(), reverse("admin:queue_attempt_changelist")
    seen, query = 0, ""
    while True:
        text = page(client, address + query)
        seen += text.count("<td>succeeded</td>")
        following = re.search(r'href="(\?shard=0&amp;before=[^"]+)" rel="next"', text)
        if following is None:
            break
        query = following[1].replace("&amp;", "&")
    assert seen == 5


@pytest.mark.parametrize("before", ["x", "1~2~3", "", "~"])
def test_a_place_that_is_none_leads_back_to_the_list(before: str) -> None:
    client = admin_cast.operator()
    assert "no place in a list" in page(client, f"{_list_of(Job)}?before={before}")
    assert client.get(reverse("admin:queue_attempt_changelist"), {"before": before}).status_code == 302


def test_a_list_costs_the_same_for_one_row_and_for_many() -> None:
    client = admin_cast.operator()
    counts = []
    for _ in range(2):
        cast.enqueue_many(20, tenant_id=cast.globex().pk)
        cast.enqueue()
        with admin_cast.statements() as seen:
            client.get(_list_of(Job))
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_jobs_are_found_by_their_id_and_tenant() -> None:
    mine, other = cast.enqueue(), cast.enqueue(tenant_id=cast.globex().pk)
    client = admin_cast.operator()
    assert format_id(other) not in page(client, f"{_list_of(Job)}?q={format_id(mine)}")
    assert format_id(mine) not in page(client, f"{_list_of(Job)}?q=tenant:globex")
    assert "neither a job" in page(client, f"{_list_of(Job)}?q=nonsense")


# Cancel


def _cancel_url(job_id: int) -> str:
    return reverse("admin:queue_job_cancel", args=[format_id(job_id)])


def test_a_job_is_cancelled_with_a_reason_in_the_audit() -> None:
    client, job_id = admin_cast.operator(), cast.enqueue(now=None)
    page(client, _cancel_url(job_id))
    assert client.post(_cancel_url(job_id), {"reason": "not wanted"}).status_code == 302
    assert reads.job(job_id, scope=FLEET).state == "cancelled"
    entry = AuditEntry.objects.using(SHARD).get(action="job.cancel")
    assert (entry.actor, entry.reason, entry.tenant_id) == ("user:ops", "not wanted", cast.acme().pk)


def test_a_finished_job_is_not_cancelled_and_nothing_is_audited() -> None:
    client, job_id = admin_cast.operator(), cast.buried()
    with cast.changes_nothing(job_id):
        response = client.post(_cancel_url(job_id), {"reason": ""})
    assert "already ended" in admin_cast.checked(response)
    assert cast.audited("job.cancel") == 0


def test_who_may_only_look_cannot_cancel() -> None:
    client, job_id = admin_cast.staff("queue.view_job"), cast.enqueue()
    assert "Cancel" not in page(client, job_url(job_id))
    assert client.post(_cancel_url(job_id), {"reason": ""}).status_code == 403
    assert client.get(reverse("admin:queue_attempt_changelist")).status_code == 403


# Queues


def _form_of(queue: Queue | None, **changes: object) -> dict[str, object]:
    source = queue or Queue()
    values = {name: getattr(source, name) for name in policies.SETTABLE}
    return {name: "" if value is None else value for name, value in {**values, **changes}.items()}


def test_a_queue_is_made_by_the_verb() -> None:
    client = admin_cast.operator()
    form = _form_of(None, name="mail", preset="hnl", lease_s=45)
    assert client.post(reverse("admin:queue_queue_add"), form).status_code == 302
    assert [band.name for band in policies.by_name("mail").bands] == ["H", "N", "L"]
    assert PolicyRow.objects.using(SHARD).get(name="mail").lease_s == 45
    assert AuditEntry.objects.get(action="queue.create", target="queue:mail").actor == "user:ops"


@pytest.mark.parametrize(
    "wrong", [{"name": "Mail"}, {"name": "default"}, {"preset": "x"}, {"lease_s": 0}, {"lease_s": "x"}]
)
def test_a_wrong_queue_is_refused_in_the_form(wrong: dict[str, object]) -> None:
    cast.queue()
    form = _form_of(None, **{"name": "mail", "preset": "five", **wrong})
    response = admin_cast.operator().post(reverse("admin:queue_queue_add"), form)
    assert "errorlist" in admin_cast.checked(response)
    assert not Queue.objects.filter(name="mail").exists()


def test_a_changed_setting_reaches_the_shard() -> None:
    queue = Queue.objects.get(pk=cast.queue("mail").id)
    address = reverse("admin:queue_queue_change", args=[queue.pk])
    assert admin_cast.operator().post(address, _form_of(queue, lease_s=7)).status_code == 302
    row = PolicyRow.objects.using(SHARD).get(name="mail")
    assert (row.lease_s, row.version) == (7, 2)
    entry = AuditEntry.objects.get(action="queue.change", target="queue:mail")
    assert entry.details == {"before": {"lease_s": 30}, "after": {"lease_s": 7}}


@pytest.mark.parametrize(
    ("action", "field", "value"),
    [
        ("pause", "is_dispatch_paused", True),
        ("resume", "is_dispatch_paused", False),
        ("pause_intake", "is_intake_paused", True),
        ("resume_intake", "is_intake_paused", False),
    ],
)
def test_queues_are_paused_and_resumed(action: str, field: str, value: bool) -> None:
    queue = cast.queue("mail")
    if not value:
        policies.pause("mail", intake="intake" in field, actor=cast.OPS)
    client = admin_cast.operator()
    assert client.post(_list_of(Queue), {"action": action, "_selected_action": [queue.id]}).status_code == 302
    assert getattr(PolicyRow.objects.using(SHARD).get(name="mail"), field) is value


def test_who_may_only_look_cannot_pause() -> None:
    queue = cast.queue("mail")
    admin_cast.staff("queue.view_queue").post(
        _list_of(Queue), {"action": "pause", "_selected_action": [queue.id]}
    )
    assert not PolicyRow.objects.using(SHARD).get(name="mail").is_dispatch_paused
