"""Versions of policies in the admin: who, when and why at a glance; changed, rolled out and returned by its verbs."""

from __future__ import annotations

import pytest
from django.urls import reverse

from jobqueue import policies
from jobqueue.models import PolicyVersion
from jobqueue.policies import QueuePolicy
from jobqueue.policy.types import SERVICE_TIME
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.admin_cast import page

pytestmark = pytest.mark.django_db

LIST = reverse("admin:queue_policyversion_changelist")
NEW = {
    "weight_0": "5",
    "weight_1": "2",
    "weight_2": "1",
    "cost_model": SERVICE_TIME,
    "reserved_share": "0.05",
    "ageing_s": "",
    "reason": "reports starve",
}


def _address(verb: str, queue: QueuePolicy) -> str:
    return reverse(f"admin:queue_policyversion_{verb}", args=[queue.id])


def _queue() -> QueuePolicy:
    return cast.queue("work", preset="hnl")


def _fresh(queue: QueuePolicy) -> QueuePolicy:
    policies.forget()
    return policies.by_name(queue.name)


def test_the_list_says_who_made_a_version_and_why() -> None:
    queue = _queue()
    policies.set_policy(queue.name, {"ageing_s": 60}, actor="user:mary", reason="old jobs wait")
    text = page(admin_cast.operator(), LIST)
    assert "user:mary" in text
    assert "old jobs wait" in text
    assert "in force" in text


def test_a_new_version_with_another_cost_model_is_in_force_at_once() -> None:
    queue = _queue()
    admin_cast.operator().post(_address("new", queue), NEW | {"share": "1"})
    now = _fresh(queue)
    assert [band.weight for band in now.bands] == [5, 2, 1]
    assert now.cost_model == SERVICE_TIME
    assert PolicyVersion.objects.get(queue_id=queue.id, number=now.policy_number).actor == "user:ops"


def test_a_version_is_tried_and_rolled_out_by_steps() -> None:
    queue, client = _queue(), admin_cast.operator()
    client.post(_address("new", queue), NEW | {"share": "0.1"})
    tried = _fresh(queue)
    assert tried.trial is not None
    assert tried.trial.share == 0.1
    assert [band.weight for band in tried.bands] == [3, 2, 1]
    assert "on trial, 10% of claims" in page(client, LIST)
    client.post(_address("roll_out", queue), {"share": "1", "reason": "holds"})
    assert [band.weight for band in _fresh(queue).bands] == [5, 2, 1]


def test_one_click_returns_to_the_policy_before() -> None:
    queue, client = _queue(), admin_cast.operator()
    client.post(_address("new", queue), NEW | {"share": "1"})
    client.post(_address("return", queue), {"reason": "worse"})
    assert [band.weight for band in _fresh(queue).bands] == [3, 2, 1]
    assert AuditEntry.objects.get(action="policy.return").reason == "worse"


def test_a_page_to_change_a_policy_offers_each_weight() -> None:
    queue = _queue()
    text = page(admin_cast.operator(), _address("new", queue))
    assert all(f"Weight of {name}" in text for name in "HNL")


@pytest.mark.parametrize("verb", ["new", "roll_out", "return"])
def test_a_change_needs_its_permission(verb: str) -> None:
    queue = _queue()
    client = admin_cast.staff("queue.view_policyversion")
    assert client.post(_address(verb, queue), NEW | {"share": "1"}).status_code == 403
    assert _fresh(queue).policy_number == queue.policy_number


def test_a_share_beyond_all_claims_is_refused() -> None:
    queue = _queue()
    response = admin_cast.operator().post(_address("new", queue), NEW | {"share": "2"})
    assert b"less than or equal to 1" in response.content
    assert _fresh(queue).policy_number == queue.policy_number
