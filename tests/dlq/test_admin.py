"""The dead-letter desk in the admin: masked until somebody corrects, back only with a note, once."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from dlq import pacing, reads
from dlq.models import Campaign, Correction, DeadLetter, Redrive
from jobqueue import reads as job_reads
from jobqueue.ids import format_id
from jobqueue.types import FLEET
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import SHARD, at

pytestmark = pytest.mark.django_db

SECRET = '{"card": "4711-secret"}'


def _url(verb: str, job_id: int) -> str:
    return reverse(f"admin:dlq_deadletter_{verb}", args=[format_id(job_id)])


def _key(text: str) -> str:
    found = re.search(r'name="redrive_key" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def test_a_dead_letter_shows_why_and_hides_its_payload() -> None:
    job_id = cast.buried(error_class="permanent", payload=SECRET)
    text = page(admin_cast.operator(), _url("change", job_id))
    view = reads.dead_letter(job_id, scope=FLEET)
    assert "boom 17" in text
    assert f"{len(SECRET)} bytes" in text
    assert str(view.payload_sha256) in text
    assert "4711" not in text


def test_dead_letters_are_listed_by_their_failure_and_page_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib import admin

    monkeypatch.setattr(admin.site.get_model_admin(DeadLetter), "list_per_page", 2)
    ids = [format_id(cast.buried(now=at(second))) for second in (30, 10, 20, 40, 0)]
    client, seen, query = admin_cast.operator(), [], ""
    while True:
        text = page(client, reverse("admin:dlq_deadletter_changelist") + query)
        seen += re.findall(r'<th class="field-job"><a [^>]*>([^<]+)<', text)
        following = re.search(r'href="(\?before=[^"]+)" rel="next"', text)
        if following is None:
            break
        query = following[1].replace("&amp;", "&")
    assert seen == [ids[3], ids[0], ids[2], ids[1], ids[4]]


def test_a_redrive_needs_a_note() -> None:
    job_id = cast.buried()
    with cast.changes_nothing(job_id):
        response = admin_cast.operator().post(_url("redrive", job_id), {"note": " ", "redrive_key": "k"})
    assert "errorlist" in admin_cast.checked(response)


def test_a_redrive_is_the_verb_and_a_form_sent_twice_is_one() -> None:
    client, job_id = admin_cast.operator(), cast.buried()
    form = {"note": "the receiver is back", "redrive_key": _key(page(client, _url("redrive", job_id)))}
    assert client.post(_url("redrive", job_id), form).status_code == 302
    assert job_reads.job(job_id, scope=FLEET).state == "ready"
    redriven = Redrive.objects.using(SHARD).get(job_id=job_id)
    assert (redriven.actor, redriven.note, redriven.redrive_key) == (
        "user:ops",
        form["note"],
        form["redrive_key"],
    )
    assert client.post(_url("redrive", job_id), form).status_code == 404
    assert cast.audited("job.redrive") == 1


def test_what_must_be_corrected_first_is_refused_with_one_sentence() -> None:
    job_id = cast.buried(error_class="permanent")
    with cast.changes_nothing(job_id):
        response = admin_cast.operator().post(_url("redrive", job_id), {"note": "n", "redrive_key": "k"})
    assert "must be corrected before" in admin_cast.checked(response)


def test_a_correction_keeps_its_digits_and_the_job_runs_with_it() -> None:
    client, job_id = admin_cast.operator(), cast.buried(error_class="permanent", payload=SECRET)
    form = {"note": "typo", "payload": '{"amount": 1.10}', "payload_ref": ""}
    assert client.post(_url("correct", job_id), form).status_code == 302
    assert client.post(_url("redrive", job_id), {"note": "n", "redrive_key": "k"}).status_code == 302
    assert cast.claim_one().payload == '{"amount": 1.10}'
    assert Correction.objects.using(SHARD).get(job_id=job_id).author == "user:ops"


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": "{"},
        {"payload": '{"a": 1, "a": 2}'},
        {"payload": ""},
        {"payload": "1", "payload_ref": "s3://x"},
        {"payload": "[" + "1," * 70_000 + "1]"},
        {"note": ""},
    ],
    ids=["broken", "twice", "none", "both", "large", "note"],
)
def test_a_wrong_correction_is_refused(wrong: dict[str, str]) -> None:
    job_id = cast.buried(error_class="permanent")
    with cast.changes_nothing(job_id):
        form = {"note": "n", "payload": "1", "payload_ref": "", **wrong}
        response = admin_cast.operator().post(_url("correct", job_id), form)
    assert "errornote" in (text := admin_cast.checked(response)) or "errorlist" in text


def test_the_present_payload_is_shown_when_asked_for_and_that_is_audited() -> None:
    client, job_id = admin_cast.operator(), cast.buried(payload=SECRET)
    assert "4711" not in page(client, _url("correct", job_id))
    assert cast.audited("job.payload_shown") == 0
    assert "4711" in page(client, _url("correct", job_id) + "?present")
    assert cast.audited("job.payload_shown") == 1


def test_who_may_only_look_can_neither_redrive_nor_correct() -> None:
    client, job_id = admin_cast.staff("dlq.view_deadletter"), cast.buried(payload=SECRET)
    text = page(client, _url("change", job_id))
    assert "Redrive…" not in text
    assert "Correct…" not in text
    with cast.changes_nothing(job_id):
        assert client.post(_url("redrive", job_id), {"note": "n", "redrive_key": "k"}).status_code == 403
        assert client.get(_url("correct", job_id) + "?present").status_code == 403
        assert client.post(_url("correct", job_id), {"note": "n", "payload": "1"}).status_code == 403


@pytest.mark.parametrize("verb", ["redrive", "correct"])
def test_a_job_that_is_not_dead_is_not_found(verb: str) -> None:
    job_id = cast.enqueue()
    assert admin_cast.operator().get(_url(verb, job_id)).status_code == 404


# Many at once

LETTERS = "admin:dlq_deadletter_changelist"
LONG_AGO = datetime(2025, 5, 4, tzinfo=UTC)  # before the clock that freezes what the admin starts
PLAN = {"note": "the receiver is back", "rate_per_s": "200", "canary": "0", "stop_at_failure_share": "0.5"}


def _act(client: Client, *job_ids: int, query: str = "", **form: str) -> Any:
    chosen = {"action": "redrive_selected", "_selected_action": [str(job_id) for job_id in job_ids]}
    return client.post(reverse(LETTERS) + query, {**chosen, **form})


def test_the_ticked_are_redriven_by_a_campaign() -> None:
    ids = cast.graveyard(4, now=LONG_AGO)
    client = admin_cast.operator()
    asked = admin_cast.checked(_act(client, *ids[:2]))
    assert "2 dead letters match" in asked
    assert f'name="_selected_action" value="{ids[1]}"' in asked
    response = _act(client, *ids[:2], apply="1", **PLAN)
    campaign = Campaign.objects.get()
    assert response.headers["Location"] == reverse("admin:dlq_campaign_change", args=[campaign.pk])
    assert (campaign.actor, campaign.job_ids, campaign.first_matches) == ("user:ops", ids[:2], 2)
    assert LogEntry.objects.get().object_id == str(campaign.pk)
    pacing.advance(now=at(10))
    assert [cast.place(job_id) for job_id in ids] == ["readyjob"] * 2 + ["deadletter"] * 2


def test_all_across_pages_start_a_campaign_of_the_list_s_filter() -> None:
    (one, *_) = cast.graveyard(3)
    cast.buried(now=at(5), error_class="uncertain")
    client = admin_cast.operator()
    _act(client, one, query="?reason__exact=exhausted", select_across="1", apply="1", **PLAN)
    campaign = Campaign.objects.get()
    assert (campaign.reason, campaign.job_ids) == ("exhausted", None)
    assert campaign.failed_before is not None


def test_a_list_narrowed_by_a_search_is_not_taken_for_all() -> None:
    ids = cast.graveyard(2)
    response = _act(
        admin_cast.operator(), ids[0], query=f"?q=0-{ids[0]}", select_across="1", apply="1", **PLAN
    )
    assert response.status_code == 302
    assert not Campaign.objects.exists()


def test_a_campaign_needs_a_note_and_sound_numbers() -> None:
    ids = cast.graveyard(1)
    for wrong in ({"note": " "}, {"rate_per_s": "201"}, {"canary": "x"}, {"stop_at_failure_share": "0"}):
        response = _act(
            admin_cast.operator() if wrong == {"note": " "} else _again(), *ids, apply="1", **PLAN | wrong
        )
        assert "errorlist" in admin_cast.checked(response)
    assert not Campaign.objects.exists()


def _again() -> Client:
    client = Client()
    client.force_login(User.objects.get(username="ops"))
    return client


def test_who_may_not_redrive_is_not_offered_it_and_starts_nothing() -> None:
    ids = cast.graveyard(1)
    client = admin_cast.staff("dlq.view_deadletter", "dlq.view_campaign")
    assert "campaign" not in page(client, reverse(LETTERS)).split("object-tools")[-1].split("</ul>")[0]
    _act(client, *ids, apply="1", **PLAN)
    assert client.get(reverse("admin:dlq_deadletter_campaign")).status_code == 403
    assert not Campaign.objects.exists()


def test_the_campaign_page_begins_with_the_list_s_filter() -> None:
    cast.graveyard(3, kind="a")
    client = admin_cast.operator()
    address = reverse("admin:dlq_deadletter_campaign")
    response = client.get(address + "?reason__exact=invalid")
    assert "0 dead letters match" in admin_cast.checked(response)
    form = {"reason": "invalid", "kind": "", "queue": "", "fingerprint": "", "failed_before": "", **PLAN}
    assert client.post(address, form).status_code == 302
    assert Campaign.objects.get().reason == "invalid"
    assert "errornote" in admin_cast.checked(client.post(address, form | {"reason": ""}))


def test_a_campaign_s_page_shows_progress_and_its_verbs() -> None:
    cast.graveyard(3)
    made, client = cast.campaign(now=at(9)), admin_cast.operator()
    address = reverse("admin:dlq_campaign_change", args=[made.pk])
    text = page(client, address)
    assert "0 of 3" in text
    assert "Pause…" in text
    assert "3 of" not in page(client, reverse("admin:dlq_campaign_changelist")).replace("0 of 3", "")
    assert (
        client.post(reverse("admin:dlq_campaign_pause", args=[made.pk]), {"reason": "lunch"}).status_code
        == 302
    )
    assert "Resume…" in page(client, address)
    entry = cast.read(
        "SELECT actor, reason FROM tenants_auditentry WHERE action = 'campaign.pause'", alias="default"
    )
    assert entry == [("user:ops", "lunch")]
    assert "paused" in LogEntry.objects.get(object_id=str(made.pk)).change_message


def test_groups_lead_to_their_dead_letters() -> None:
    job_id = cast.buried()
    client = admin_cast.operator()
    text = page(client, reverse("admin:dlq_deadletter_groups"))
    found = re.search(r'href="([^"]+/groups/[0-9a-f]{16}/)"', text)
    assert found is not None
    assert format_id(job_id) in page(client, found[1])


def test_what_the_admin_does_is_in_django_s_log_too() -> None:
    client, job_id = admin_cast.operator(), cast.buried()
    assert client.post(_url("redrive", job_id), {"note": "n", "redrive_key": "k"}).status_code == 302
    entry = LogEntry.objects.get()
    assert (entry.user.get_username(), entry.object_id) == ("ops", str(job_id))
    assert "ready again" in entry.change_message
