"""Registered kinds: precedence of their settings, schemas at enqueue and correction, what code declares."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models import Field

from jobqueue import kinds, policies
from jobqueue.declarations import BOUNDS, Declaration, Declared
from jobqueue.enqueue import Accepted
from jobqueue.enqueue import enqueue as enqueue_jobs
from jobqueue.models import JobKind, KindRow
from jobsplatform.errors import Invalid, JobsPlatformError, RequestKeyConflict
from tests import api_cast, cast
from tests.cast import OPS, SHARD, at

pytestmark = pytest.mark.django_db

MAIL = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string", "pattern": "@"}}}


def declare(name: str = "mail", by: str = "app.send", **settings: Any) -> list[str]:
    return kinds.sync({name: Declared(by, Declaration(**settings))}, actor="worker:w")


def change(name: str = "mail", **settings: Any) -> JobKind:
    return kinds.change(name, settings, actor=OPS)


def refused(**job: Any) -> Invalid:
    outcome = enqueue_jobs([cast.new_job(**{"kind": "mail", **job})], now=at(0))[0]
    assert isinstance(outcome, Invalid), outcome
    return outcome


def pointers(error: JobsPlatformError) -> list[str]:
    assert isinstance(error, Invalid)
    return sorted(fault.pointer for fault in error.errors)


# Schemas


def test_a_payload_that_fails_its_kind_s_schema_is_refused_with_pointers() -> None:
    change(payload_schema=MAIL)
    assert pointers(refused(payload='{"to": 3}')) == ["/payload/to"]
    assert pointers(refused(payload="{}")) == ["/payload"]


def test_nothing_is_stored_of_a_refused_payload() -> None:
    change(payload_schema=MAIL)
    refused(payload="{}", request_key="k")
    assert cast.read("SELECT count(*) FROM queue_job") == [(0,)]
    assert cast.read("SELECT count(*) FROM queue_requestkey") == [(0,)]


def test_a_payload_that_satisfies_the_schema_is_accepted_and_kept_as_sent() -> None:
    change(payload_schema=MAIL)
    job_id = cast.enqueue(kind="mail", payload='{ "to":"a@b" }')
    assert cast.row("queue_job", job_id)["payload"] == '{ "to":"a@b" }'


def test_a_payload_by_reference_is_not_checked() -> None:
    change(payload_schema=MAIL)
    assert cast.enqueue(kind="mail", payload=None, payload_ref="s3://x")


def test_a_schema_set_a_moment_ago_holds_for_the_next_request() -> None:
    """Also where this process has met the kind without one: absence is never remembered."""
    cast.enqueue(kind="mail", payload="{}")
    change(payload_schema=MAIL)
    kept = dict(kinds._known)
    refused(payload="{}")
    kinds._known.clear()
    kinds._known.update(kept)
    refused(payload="{}")


def test_what_another_process_changed_is_seen_at_once() -> None:
    """What is remembered is used only with the version that the statement finds."""
    change(payload_schema=MAIL)
    cast.enqueue(kind="mail", payload='{"to": "a@b"}')
    remembered = dict(kinds._known)
    change(payload_schema={"required": ["cc"]})
    kinds._known.update(remembered)
    assert pointers(refused(payload='{"to": "a@b"}')) == ["/payload"]
    change(payload_schema={})
    kinds._known.update(remembered)
    assert cast.enqueue(kind="mail", payload="{}")


def test_a_replay_of_what_was_accepted_is_answered_after_the_schema_has_changed() -> None:
    job_id = cast.enqueue(kind="mail", payload="{}", request_key="k")
    change(payload_schema=MAIL)
    again = enqueue_jobs([cast.new_job(kind="mail", payload="{}", request_key="k")], now=at(1))[0]
    assert again == Accepted(job_id, replayed=True)


def test_a_batch_stands_item_by_item() -> None:
    change(payload_schema=MAIL)
    good, bad = '{"to": "a@b"}', "{}"
    jobs = [cast.new_job(kind="mail", payload=text) for text in (good, bad, good)] + [cast.new_job()]
    outcomes = enqueue_jobs(jobs, now=at(0))
    assert [isinstance(outcome, Accepted) for outcome in outcomes] == [True, False, True, True]


def test_a_key_whose_first_use_in_a_batch_was_refused_is_free_for_the_next() -> None:
    change(payload_schema=MAIL)
    texts = ("{}", '{"to": "a@b"}', '{"to": "a@b"}', '{"to": "c@d"}')
    outcomes = enqueue_jobs([cast.new_job(kind="mail", payload=t, request_key="k") for t in texts], now=at(0))
    assert isinstance(outcomes[0], Invalid)
    assert [isinstance(one, Accepted) and one.replayed for one in outcomes] == [False, False, True, False]
    assert isinstance(outcomes[3], RequestKeyConflict)


def test_over_http_a_refused_payload_is_400_and_an_item_of_a_batch_names_its_place() -> None:
    change(payload_schema=MAIL)
    api = api_cast.caller("acme")
    single = api.post("/v1/jobs", {"kind": "mail", "payload": {"to": "nobody"}})
    assert api_cast.pointers(single) == ["/payload/to"]
    items = [{"kind": "mail", "payload": {"to": "a@b"}}, {"kind": "mail", "payload": {}}]
    results = api.post("/v1/jobs/batch", {"jobs": items}).json()["results"]
    assert [result["status"] for result in results] == [201, 400]
    assert [error["pointer"] for error in results[1]["problem"]["errors"]] == ["/jobs/1/payload"]


def test_a_refusal_repeats_no_value_of_the_payload() -> None:
    change(payload_schema=MAIL)
    assert "secret" not in json.dumps(refused(payload='{"to": "secret"}').errors)


@pytest.mark.parametrize("schema", [{"type": "nope"}, {"$ref": "http://example.org/x"}, {"$ref": "#"}])
def test_a_schema_that_cannot_be_used_is_refused_when_it_is_set(schema: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        change(payload_schema=schema)
    assert pointers(refusal.value) == ["/payload_schema"]
    assert not JobKind.objects.exists()


# Corrections


def test_a_correction_that_fails_the_schema_is_refused_and_a_good_one_is_taken() -> None:
    """S111, the part of the schema."""
    job_id = cast.buried(kind="mail", payload="{}", error_class="permanent")
    change(payload_schema=MAIL)
    with cast.changes_nothing(job_id), pytest.raises(Invalid) as refusal:
        cast.correct(job_id, payload='{"to": 1}')
    assert pointers(refusal.value) == ["/payload/to"]
    assert cast.correct(job_id, payload='{"to": "a@b"}').version == 1
    assert cast.redriven(job_id).redrive_generation == 1


def test_the_desk_over_http_takes_only_a_good_correction_with_a_note_from_who_may() -> None:
    """S111."""
    api = api_cast.caller("acme")
    job_id = api.kill(kind="mail", payload={})
    change(payload_schema=MAIL)
    redrive, corrections = f"/v1/dlq/{job_id}/redrive", f"/v1/dlq/{job_id}/corrections"
    good = {"note": "the address was missing", "payload": {"to": "a@b"}}
    assert api_cast.code(api.post(redrive, {"note": "again"})) == (409, "correction_required")
    assert api_cast.pointers(api.post(corrections, {**good, "payload": {"to": 1}})) == ["/payload/to"]
    reader = api_cast.caller("acme", "read")
    assert api_cast.code(reader.post(corrections, good)) == (403, "insufficient_scope")
    assert api_cast.pointers(api.post(corrections, {**good, "note": ""})) == ["/note"]
    made = api.post(corrections, good).json()
    assert made["version"] == 1
    assert made["old_sha256"] != made["new_sha256"]
    assert api.post(redrive, {"note": "again"}).status_code == 201


def test_check_payload_is_silent_about_kinds_that_nobody_registered() -> None:
    kinds.check_payload("never.seen", "{}")


# Defaults and their precedence


def test_attempts_come_from_the_request_then_the_operator_then_the_code_then_the_queue() -> None:
    def attempts(**job: Any) -> int:
        return int(cast.row("queue_job", cast.enqueue(kind="mail", **job))["max_attempts"])

    assert attempts() == 5
    declare(max_attempts=7)
    assert attempts() == 7
    change(max_attempts=8)
    assert attempts() == 8
    assert attempts(max_attempts=9) == 9
    change(max_attempts=None)
    assert attempts() == 7


def test_backoff_is_the_kind_s_before_the_queue_s() -> None:
    cast.queue(backoff_base_s=100, backoff_cap_s=100)
    declare(backoff_base_s=10, backoff_cap_s=1_000)
    failed = cast.fail(cast.leased(kind="mail"), now=at(0))
    assert failed.next_attempt_at is not None
    assert 5 <= (failed.next_attempt_at - at(0)).total_seconds() <= 10
    failed = cast.fail(cast.leased(kind="other"), now=at(0))
    assert failed.next_attempt_at is not None
    assert 50 <= (failed.next_attempt_at - at(0)).total_seconds() <= 100


def test_a_job_without_a_dependency_gets_its_kind_s_and_its_own_stays() -> None:
    change(dependency="smtp")
    assert cast.row("queue_job", cast.enqueue(kind="mail"))["dependency"] == "smtp"
    assert cast.row("queue_job", cast.enqueue(kind="mail", dependency="own"))["dependency"] == "own"


@pytest.mark.parametrize("now", ["relay", None, "gone"])
def test_a_default_that_another_process_changed_or_took_away_is_not_given_any_more(now: str | None) -> None:
    change(dependency="smtp")
    cast.enqueue(kind="mail")
    remembered = dict(kinds._known)
    if now == "gone":
        KindRow.objects.using(SHARD).all().delete()
    else:
        change(dependency=now)
    kinds._known.update(remembered)
    stored = cast.row("queue_job", cast.enqueue(kind="mail"))["dependency"]
    assert stored == (None if now == "gone" else now)


def test_the_reply_to_an_enqueue_tells_the_kind_s_dependency() -> None:
    change(dependency="smtp", max_attempts=2)
    body = api_cast.caller("acme").post("/v1/jobs", {"kind": "mail", "payload": {}}).json()
    assert (body["dependency"], body["max_attempts"]) == ("smtp", 2)


def test_a_default_that_changes_later_makes_no_replay_a_conflict() -> None:
    job_id = cast.enqueue(kind="mail", request_key="k")
    change(dependency="smtp")
    again = enqueue_jobs([cast.new_job(kind="mail", request_key="k")], now=at(1))[0]
    assert again == Accepted(job_id, replayed=True)


def test_a_request_without_a_queue_goes_to_its_kind_s() -> None:
    cast.queue("mails")
    change(queue="mails")
    api = api_cast.caller("acme")
    assert api.post("/v1/jobs", {"kind": "mail", "payload": {}}).json()["queue"] == "mails"
    assert (
        api.post("/v1/jobs", {"kind": "mail", "payload": {}, "queue": "default"}).json()["queue"] == "default"
    )
    assert api.post("/v1/jobs", {"kind": "other", "payload": {}}).json()["queue"] == "default"


def test_the_code_s_queue_holds_until_an_operator_sets_another() -> None:
    declare(queue="mails")
    assert (kinds.queue_of("mail"), kinds.queue_of("other")) == ("mails", None)
    cast.queue("relay")
    change(queue="relay")
    assert kinds.queue_of("mail") == "relay"


def test_a_lost_control_database_leaves_kinds_where_they_went(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("gone")

    declare(queue="mails")
    monkeypatch.setattr(kinds, "CACHE_SECONDS", 0)
    assert kinds.queue_of("mail") == "mails"
    monkeypatch.setattr(kinds, "_read_queues", away)
    assert kinds.queue_of("mail") == "mails"
    kinds.forget()
    with pytest.raises(OperationalError):
        kinds.queue_of("mail")


def test_a_new_lane_is_charged_the_cost_hint_until_it_is_measured() -> None:
    change(cost_hint_s=12.5)
    cast.enqueue(kind="mail")
    assert cast.read("SELECT mean_ms FROM queue_lane WHERE kind = 'mail'") == [(12_500.0,)]


# What code declares


def test_code_that_declares_nothing_registers_nothing() -> None:
    assert declare() == []
    assert not JobKind.objects.exists()


def test_a_declaration_is_registered_once_and_audited() -> None:
    assert declare(schema_is := "mail", payload_schema=MAIL, external_effects=True) == [schema_is]
    assert declare(payload_schema=MAIL, external_effects=True) == []
    assert cast.audited("kind.declare", alias="default") == 1
    row = KindRow.objects.using(SHARD).get(kind="mail")
    assert (json.loads(row.payload_schema or ""), row.external_effects) == (MAIL, True)


def test_what_code_no_longer_declares_is_forgotten_and_an_operator_s_setting_stays() -> None:
    declare(max_attempts=7, dependency="smtp")
    change(dependency="relay")
    assert declare() == ["mail"]
    row = KindRow.objects.using(SHARD).get(kind="mail")
    assert (row.max_attempts, row.dependency) == (None, "relay")


def test_an_operator_may_lift_the_schema_of_the_code() -> None:
    declare(payload_schema=MAIL)
    change(payload_schema={})
    assert cast.enqueue(kind="mail", payload="{}")


def test_an_older_version_never_overwrites_a_newer() -> None:
    old = change(max_attempts=2)
    change(max_attempts=3)
    kinds.push(old)
    assert KindRow.objects.using(SHARD).get(kind="mail").max_attempts == 3


def test_sync_mends_a_shard_that_missed_a_push() -> None:
    declare(max_attempts=7)
    KindRow.objects.using(SHARD).all().delete()
    declare(max_attempts=7)
    assert KindRow.objects.using(SHARD).get(kind="mail").max_attempts == 7


# Refusals


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"max_attempts": 0}, "/max_attempts"),
        ({"backoff_base_s": 0.01}, "/backoff_base_s"),
        ({"queue": "nowhere"}, "/queue"),
        ({"dependency": "Bad"}, "/dependency"),
        ({"wrong": 1}, "/wrong"),
    ],
)
def test_a_setting_out_of_its_bounds_is_refused(settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        change(**settings)
    assert pointers(refusal.value) == [pointer]


@pytest.mark.parametrize("name", ["message", "Upper", ""])
def test_a_name_that_no_handler_can_have_is_refused(name: str) -> None:
    with pytest.raises(Invalid) as refusal:
        change(name, max_attempts=1)
    assert pointers(refusal.value) == ["/name"]


def test_code_and_table_have_the_same_bounds() -> None:
    for name, bounds in BOUNDS.items():
        field = JobKind._meta.get_field(name)
        assert isinstance(field, Field)
        limits = {getattr(validator, "limit_value", None) for validator in field.validators}
        assert set(bounds) <= limits, name


def test_a_change_is_audited_with_what_was_before() -> None:
    change(max_attempts=2)
    kinds.change("mail", {"max_attempts": 3}, actor=OPS, reason="flaky relay")
    rows = cast.read(
        "SELECT actor, reason, details FROM tenants_auditentry WHERE action = 'kind.change' ORDER BY id DESC",
        alias="default",
    )
    actor, reason, details = rows[0]
    details = details if isinstance(details, dict) else json.loads(details)
    assert (actor, reason) == (OPS, "flaky relay")
    assert details == {"before": {"max_attempts": 2}, "after": {"max_attempts": 3}}


def test_policies_know_nothing_of_kinds() -> None:
    """A queue of a kind's name is another thing."""
    cast.queue("mail")
    assert policies.by_name("mail").max_attempts == 5
    assert not kinds.listing()
