"""One correction for a whole campaign: what RFC 7396 says, what schemas refuse, and versions beside what was there."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq import campaigns, pacing, patches, patching, report
from dlq.campaigns import CampaignFilter, NewCampaign
from dlq.models import Campaign, Correction
from jobqueue import fsck, kinds, reads
from jobqueue.types import FLEET
from jobsplatform.errors import Invalid, KeyConflict
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import OPS, SHARD, at
from tests.commands_cast import refused, run

LONG_AGO = datetime(2025, 5, 4, tzinfo=UTC)  # before the true clock, by which pages freeze
WIZARD = "/admin/dead-letters/redrive/"
EXHAUSTED = CampaignFilter(reason="exhausted")
SCHEMA = {"type": "object", "properties": {"to": {"type": "string", "maxLength": 5}}, "required": ["to"]}

# The examples of RFC 7396, appendix A, as far as the target is an object.
RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


# The merge


@pytest.mark.parametrize(("target", "patch", "result"), RFC)
def test_it_merges_as_the_rfc_says(target: str, patch: str, result: str) -> None:
    assert patching.merged(target, patch) == result


def test_numbers_keep_their_digits_and_members_their_order() -> None:
    old = '{ "z": 1.10, "a": 12345678901234567890123, "e": 1E400, "n": {"x": -0.0, "y": 1}, '
    old += '"s": "ü\\u0000\\ud83d\\ude00" }'
    new = patching.merged(old, '{"n":{"y":2.50}}')
    assert new == (
        '{"z":1.10,"a":12345678901234567890123,"e":1E400,"n":{"x":-0.0,"y":2.50},"s":"ü\\u0000😀"}'
    )


def test_what_the_patch_does_not_change_stays_byte_for_byte() -> None:
    assert patching.merged('{ "a" : 1.0 }', '{"a":1.0,"b":null}') == '{ "a" : 1.0 }'
    assert patching.merged('{ "a" : 1.0 }', '{"a":1}') == '{"a":1}'


@pytest.mark.parametrize("payload", ["[1]", '"text"', "null", "17", "true"])
def test_a_payload_that_is_no_object_is_left_alone(payload: str) -> None:
    assert patching.merged(payload, '{"a":1}') is None


@pytest.mark.parametrize(
    "wrong", ["", "x", "[]", "{}", "null", '{"a":1', '{"a":1,"a":2}', '{"a":"' + "x" * 17_000 + '"}']
)
def test_what_is_no_patch_is_refused(wrong: str) -> None:
    with pytest.raises(Invalid):
        patching.check(wrong)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_merging_is_what_the_rfc_s_own_words_compute_and_twice_is_once(target: Any, patch: Any) -> None:
    def by_the_rfc(old: Any, new: Any) -> Any:
        if not isinstance(new, dict):
            return new
        found = dict(old) if isinstance(old, dict) else {}
        for name, value in new.items():
            found.pop(name, None) if value is None else found.update(
                {name: by_the_rfc(found.get(name), value)}
            )
        return found

    said = json.dumps(patch)
    once = patching.merged(json.dumps(target), said)
    assert once is not None
    assert json.loads(once) == by_the_rfc(target, patch)
    assert json.loads(patching.merged(once, said) or "") == json.loads(once)
    once.encode()


# The campaign


def start(patch: str, **more: Any) -> Campaign:
    return cast.campaign(now=at(9), patch=patch, **more)


def run_through(seconds: int = 20) -> None:
    for second in range(seconds):
        pacing.advance(now=at(10 + second))


@pytest.mark.django_db
def test_a_campaign_corrects_what_it_redrives_and_keeps_the_old() -> None:
    ids = [cast.buried(payload=f'{{"to": "a", "n": {n}.0}}') for n in range(3)]
    made = start('{"to": "b"}')
    run_through()
    assert {cast.place(job_id) for job_id in ids} == {"readyjob"}
    for n, job_id in enumerate(ids):
        assert reads.payload(job_id, scope=FLEET)[0] == f'{{"to":"b","n":{n}.0}}'
        (version,) = Correction.objects.using(SHARD).filter(job_id=job_id)
        assert (version.version, version.note, version.author) == (1, made.note, OPS)
    assert cast.audited("job.correct") == 3
    assert cast.audited("job.redrive") == 3
    (lease,) = cast.claim(now=at(60), limit=1)
    assert (lease.redrive_generation, str(lease.payload)[:9]) == (1, '{"to":"b"')
    assert list(fsck.check()) == []


@pytest.mark.django_db
def test_a_patch_corrects_invalid_and_poison_which_otherwise_would_stay() -> None:
    job_id = cast.buried(payload='{"to": "a"}', error_class="permanent")
    chosen = CampaignFilter(reason="invalid")
    assert campaigns.preview(chosen, scope=FLEET, now=at(9)).would_skip == {"correction_required": 1}
    assert campaigns.preview(chosen, scope=FLEET, is_patched=True, now=at(9)).would_skip == {}
    start('{"to": "b"}', chosen=chosen)
    run_through()
    assert cast.place(job_id) == "readyjob"


@pytest.mark.django_db
def test_a_patch_that_changes_nothing_corrects_nothing() -> None:
    invalid = cast.buried(payload='{"to": "a"}', error_class="permanent")
    exhausted = cast.buried(payload='{"to": "a"}')
    made = start('{"to": "a"}', chosen=CampaignFilter(kind="noop"))
    run_through()
    assert (cast.place(invalid), cast.place(exhausted)) == ("deadletter", "readyjob")
    assert not Correction.objects.using(SHARD).exists()
    assert dict(cast.progress_of(made).skipped) == {patches.CORRECTION_REQUIRED: 1}


@pytest.mark.django_db
def test_what_the_schema_refuses_and_what_is_no_object_stays_and_is_counted() -> None:
    good = cast.buried(payload='{"x": 1}')
    listed = cast.buried(payload="[1]")
    referred = cast.buried(payload=None, payload_ref="s3://b/k")
    long = cast.buried(payload='{"to": "far too long", "keep": true}')
    kinds.change("noop", {"payload_schema": {**SCHEMA, "properties": {"keep": {"const": False}}}}, actor=OPS)
    made = start('{"to": "b"}')
    run_through()
    assert cast.place(good) == "readyjob"
    assert {cast.place(job_id) for job_id in (listed, referred, long)} == {"deadletter"}
    assert dict(cast.progress_of(made).skipped) == {patches.NOT_PATCHABLE: 2, patches.SCHEMA: 1}
    assert Campaign.objects.get().state == "done"


@pytest.mark.django_db
def test_a_later_correction_is_what_the_patch_is_merged_into() -> None:
    job_id = cast.buried(payload='{"to": "a", "n": 1}')
    cast.correct(job_id, payload='{"to": "a", "n": 2}')
    start('{"to": "b"}')
    run_through()
    assert reads.payload(job_id, scope=FLEET)[0] == '{"to":"b","n":2}'
    assert Correction.objects.using(SHARD).filter(job_id=job_id).count() == 2


@pytest.mark.django_db
def test_more_than_a_batch_keeps_pace_canary_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PATCHED_MATCHES", 4)
    ids = cast.graveyard(11, payload='{"to": "a"}')
    made = start('{"to": "b"}', canary=2)
    for second in range(5):
        pacing.advance(now=at(10 + second))
    assert cast.progress_of(made).redriven == 2
    for lease in cast.claim(now=at(20), limit=2):
        cast.complete(lease, now=at(21))
    for second in range(20):
        pacing.advance(now=at(30 + second))
    assert cast.progress_of(made).redriven == 11
    assert {reads.payload(job_id, scope=FLEET)[0] for job_id in ids} == {'{"to":"b"}'}


@pytest.mark.django_db
def test_the_same_key_with_another_patch_is_a_conflict() -> None:
    cast.buried(payload="{}")
    new = NewCampaign(chosen=EXHAUSTED, note="n", actor=OPS, patch='{"a":1}', idempotency_key="k")
    first = campaigns.create(new, scope=FLEET)
    assert campaigns.create(new, scope=FLEET).pk == first.pk
    for other in ('{"a":2}', None):
        with pytest.raises(KeyConflict):
            campaigns.create(
                NewCampaign(chosen=EXHAUSTED, note="n", actor=OPS, patch=other, idempotency_key="k"),
                scope=FLEET,
            )


@pytest.mark.django_db
def test_the_audit_of_a_campaign_names_members_and_no_values() -> None:
    cast.buried(payload="{}")
    campaigns.create(
        NewCampaign(chosen=EXHAUSTED, note="n", actor=OPS, patch='{"secret": "s3cr3t"}'), scope=FLEET
    )
    ((details,),) = cast.read(
        "SELECT details::text FROM tenants_auditentry WHERE action = 'campaign.create'", alias="default"
    )
    assert '"secret"' in details
    assert "s3cr3t" not in details


# The wizard


def address(step: str, **more: str) -> str:
    plan = {"reason": "exhausted", "frozen": "2025-06-01T00:00:00Z", "step": step, **more}
    return f"{WIZARD}?{urlencode(plan)}"


@pytest.mark.django_db
def test_the_wizard_tries_a_patch_on_samples_and_takes_it_along() -> None:
    ids = [cast.buried(now=LONG_AGO, payload='{"to": "a"}') for _ in range(2)]
    listed = cast.buried(now=LONG_AGO, payload="[1]")
    client = admin_cast.operator()
    patch = '{"to": "b", "<i>": "<script>"}'
    text = page(client, address("correction", patch=patch))
    assert "2 of 3 looked at; 1 stay: not_patchable" in text
    assert '<del class="removed">-   &quot;to&quot;: &quot;a&quot;</del>' in text
    assert "<script>&quot;" not in text
    assert cast.audited("job.payload_shown") == 2
    plan = {"rate_per_s": "100", "canary": "0", "stop_at_failure_share": "0.5", "note": "n"}
    summary = address("summary", patch=patch, **plan)
    text = page(client, summary)
    assert "merged into each payload" in text
    assert cast.audited("job.payload_shown") == 2, "only the step that shows payloads shows them"
    key = re.search(r'name="key" value="([^"]+)"', text)
    assert key is not None
    assert client.post(summary, {"confirm": "redrive 3", "key": key[1]}).status_code == 302
    made = Campaign.objects.get()
    assert made.patch == patch
    assert "&lt;script&gt;" in page(client, f"/admin/dlq/campaign/{made.pk}/change/")
    run_through()
    assert {cast.place(job_id) for job_id in ids} == {"readyjob"}
    assert cast.place(listed) == "deadletter"


@pytest.mark.django_db
def test_samples_say_what_their_schema_refuses_after_the_patch() -> None:
    job_id = cast.buried(payload='{"to": "a"}', now=LONG_AGO)
    kinds.change("noop", {"payload_schema": SCHEMA}, actor=OPS)
    found = report.report(EXHAUSTED, scope=FLEET, patch='{"to": "far too long"}')
    assert [one.job_id for one in found.failing] == [job_id]
    assert dict(found.patched_stay) == {patches.SCHEMA: 1}
    text = page(
        admin_cast.operator(),
        address("correction", patch='{"to": "far too long"}', frozen="2026-01-01T00:00:00Z"),
    )
    assert "its schema refuses the new payload" in text
    assert "/payload/to" in text


@pytest.mark.parametrize("step", ["correction", "pace", "summary"])
@pytest.mark.django_db
def test_a_patch_that_is_none_goes_no_further(step: str) -> None:
    cast.buried()
    text = page(
        admin_cast.operator(),
        address(step, patch="[1]", note="n", rate_per_s="1", canary="0", stop_at_failure_share="1"),
    )
    assert "step 3 of 5" in text
    assert "A patch is a JSON object" in text


@pytest.mark.django_db
def test_who_may_redrive_but_not_correct_has_no_patch() -> None:
    cast.buried(payload='{"to": "a"}')
    client = admin_cast.staff("dlq.view_deadletter", "dlq.add_redrive")
    plan = {"rate_per_s": "100", "canary": "0", "stop_at_failure_share": "0.5", "note": "n"}
    text = admin_cast.checked(
        client.post(address("summary", patch='{"to":"b"}', **plan), {"confirm": "redrive 0"})
    )
    assert "may redrive, but not correct" in text
    assert not Campaign.objects.exists()
    assert cast.audited("job.payload_shown") == 0


# By command


@pytest.mark.django_db
def test_the_same_by_command() -> None:
    cast.buried(payload='{"to": "a"}', now=LONG_AGO)
    cast.buried(payload="[1]", now=LONG_AGO)
    command = ("dlq", "campaign", "create", "--reason", "exhausted", "--note", "n")
    tried = run(*command, "--patch", '{"to":"b"}', "--dry-run").out
    assert "Of 2 looked at 1 would be corrected, 1 not_patchable." in tried
    run(*command, "--patch", '{"to":"b"}')
    assert Campaign.objects.get().patch == '{"to":"b"}'
    assert "A patch is a JSON object" in refused(*command, "--patch", "[]")
