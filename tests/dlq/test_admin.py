"""The dead-letter desk in the admin: masked until somebody corrects, back only with a note, once."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from dlq import reads
from dlq.models import Correction, DeadLetter, Redrive
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
