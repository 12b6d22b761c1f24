"""A pause says who, why and until when; its end comes by itself, once, and never undoes another's."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from jobqueue import policies
from jobqueue.models import PolicyRow, Queue, QueuePause
from jobsplatform.errors import Invalid
from tenants.models import AuditEntry
from tests import admin_cast, cast
from tests.cast import OPS, SHARD
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def _is_paused(name: str = "mail") -> bool:
    return PolicyRow.objects.using(SHARD).get(name=name).is_dispatch_paused


@pytest.fixture(autouse=True)
def _mail() -> None:
    cast.queue("mail")


def test_a_pause_says_who_why_and_until_when() -> None:
    until = timezone.now() + timedelta(minutes=5)
    policies.pause("mail", actor=OPS, reason="smtp is down", until=until)
    (one,) = policies.pauses()
    assert (one.queue.name, one.what, one.actor, one.reason, one.until) == (
        "mail",
        "dispatch",
        OPS,
        "smtp is down",
        until,
    )
    policies.pause("mail", actor="user:mary", reason="longer")
    (one,) = policies.pauses()
    assert (one.actor, one.until) == ("user:mary", None)


def test_intake_and_starts_are_paused_apart() -> None:
    policies.pause("mail", actor=OPS)
    policies.pause("mail", intake=True, actor=OPS)
    policies.resume("mail", actor=OPS)
    assert [one.what for one in policies.pauses()] == ["intake"]
    assert not _is_paused()


def test_a_pause_ends_by_itself_when_its_time_is_up() -> None:
    until = timezone.now() + timedelta(minutes=5)
    policies.pause("mail", actor=OPS, until=until)
    assert policies.resume_due(now=until - timedelta(seconds=1)) == 0
    assert _is_paused()
    assert policies.resume_due(now=until) == 1
    assert not _is_paused()
    assert policies.pauses() == []
    entry = AuditEntry.objects.get(action="queue.resume")
    assert (entry.actor, entry.reason) == ("platform", "its time was up")
    assert policies.resume_due(now=until) == 0


def test_a_pause_that_was_prolonged_does_not_end_early() -> None:
    soon, later = (timezone.now() + timedelta(minutes=minutes) for minutes in (5, 50))
    policies.pause("mail", actor=OPS, until=soon)
    policies.pause("mail", actor=OPS, until=later)
    assert policies.resume_due(now=soon) == 0
    assert _is_paused()


def test_an_end_that_a_shard_did_not_hear_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    until = timezone.now() + timedelta(minutes=5)
    policies.pause("mail", actor=OPS, until=until)
    push = policies.push
    monkeypatch.setattr(policies, "push", lambda queue: [0])
    assert policies.resume_due(now=until) == 0
    assert _is_paused()
    monkeypatch.setattr(policies, "push", push)
    assert policies.resume_due(now=until) == 1
    assert not _is_paused()
    assert AuditEntry.objects.filter(action="queue.resume").count() == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 10**9])
def test_a_length_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(Invalid):
        policies.after(seconds)


def test_a_pause_into_the_past_is_refused() -> None:
    with pytest.raises(Invalid):
        policies.pause("mail", actor=OPS, until=timezone.now() - timedelta(seconds=1))
    assert not _is_paused()


def test_the_command_pauses_for_a_while() -> None:
    assert run("pause", "queue", "mail", "--for", "60", "--reason", "x").out == "Queue mail is paused.\n"
    (one,) = policies.pauses()
    assert one.until is not None
    assert 50 < (one.until - timezone.now()).total_seconds() <= 60
    cast.acme()
    assert "until it is resumed" in refused("pause", "tenant", "acme", "--for", "60")


# Pages


def test_a_queue_is_paused_from_its_page_and_says_so() -> None:
    client, address = admin_cast.operator(), reverse("admin:queue", args=["mail"])
    assert reverse("admin:queue_pause", args=["mail"]) in admin_cast.page(client, address)
    admin_cast.page(client, reverse("admin:queue_pause", args=["mail"]) + "?what=intake")
    form = {"what": "intake", "minutes": "90", "reason": "<b>moving</b>"}
    assert client.post(reverse("admin:queue_pause", args=["mail"]), form).headers["Location"] == address
    text = admin_cast.page(client, address)
    assert "Intake paused</strong> by user:ops" in text
    assert "&lt;b&gt;moving" in text
    assert "until 20" in text
    client.post(reverse("admin:queue_resume", args=["mail"]), {"what": "intake"})
    assert not Queue.objects.get(name="mail").is_intake_paused
    assert not QueuePause.objects.exists()


@pytest.mark.parametrize("wrong", [{"reason": ""}, {"minutes": "0"}, {"minutes": "x"}, {"what": "all"}])
def test_a_pause_needs_a_reason_and_a_sound_length(wrong: dict[str, str]) -> None:
    form = {"what": "dispatch", "minutes": "", "reason": "r", **wrong}
    response = admin_cast.operator().post(reverse("admin:queue_pause", args=["mail"]), form)
    assert "errorlist" in admin_cast.checked(response)
    assert not _is_paused()


def test_a_pause_of_before_has_no_name_but_shows() -> None:
    """A queue that an earlier release paused."""
    Queue.objects.filter(name="mail").update(is_dispatch_paused=True)
    text = admin_cast.page(admin_cast.operator(), reverse("admin:queue", args=["mail"]))
    assert "Starts paused</strong>" in text
    assert "by user" not in text


def test_the_page_shows_levels_versions_and_the_next_opportunities() -> None:
    work = cast.queue("work", preset="hnl", age_objective_s={"H": 60})
    early = timezone.now() - timedelta(seconds=90)
    cast.enqueue_many(3, queue=work, priority=0, now=early)
    text = admin_cast.page(admin_cast.operator(), reverse("admin:queue", args=["work"]))
    assert re.search(r"15\d% of 1 min", text)
    order = text.split('class="opportunities"')[1].split("</ol>")[0]
    assert [part.split("<")[0] for part in order.split('class="chip">')[1:]] == list("HHHNNLHHHNNL")
    assert "in force" in text


def test_weights_are_previewed_before_they_are_in_force() -> None:
    """Live by its fragment, and without JavaScript by its button; neither changes anything."""
    work, client = cast.queue("work", preset="hnl"), admin_cast.operator()
    address = reverse("admin:queue_policyversion_new", args=[work.id])
    form = {"weight_0": "1", "weight_1": "1", "weight_2": "2", "cost_model": "unit", "reserved_share": "0.05"}
    for response in (
        client.get(address, {"fragment": "preview", **form}),
        client.post(address, {**form, "share": "1", "preview": "Show"}),
    ):
        order = admin_cast.checked(response).split('class="opportunities"')[1].split("</ol>")[0]
        assert [part.split("<")[0] for part in order.split('class="chip">')[1:]] == list("HNLLHNLLHNLL")
    assert policies.by_name("work").policy_number == 1
    odd = client.get(
        address, {"fragment": "preview", "weight_0": "x", "weight_1": "9" * 400, "weight_2": "-1"}
    )
    assert odd.status_code == 200


def test_many_queues_are_listed_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobqueue.admin import queue_pages

    monkeypatch.setattr(queue_pages, "QUEUES_MAX", 1)
    client = admin_cast.operator()
    text = admin_cast.page(client, reverse("admin:queues"))
    assert 'href="?after=default"' in text
    assert "/admin/queues/mail/" in admin_cast.page(client, reverse("admin:queues") + "?after=default")
