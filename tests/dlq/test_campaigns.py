"""Campaigns: paced bulk redrives over a frozen filter, canary first, with a brake; counts are exact."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now

from dlq import campaigns, pacing, reads
from dlq.campaigns import CampaignFilter
from dlq.models import Campaign, CampaignPart, Redrive
from jobqueue import fsck
from jobqueue.types import FLEET, Scope
from jobsplatform import database, sql
from jobsplatform.errors import AlreadyFinished, Invalid, KeyConflict, NotFound, Unavailable
from tests import cast
from tests.cast import OPS, SHARD, acme, at, globex

pytestmark = pytest.mark.django_db

EXHAUSTED = CampaignFilter(reason="exhausted")


def _run(made: Campaign, *, start: float = 10, seconds: int = 100) -> None:
    """Passes of a dispatcher, one a second, until the campaign rests or has ended."""
    for second in range(seconds):
        if not pacing.advance(now=at(start + second)) and second > 1:
            return
    raise AssertionError("the campaign goes on and on")


def _state(made: Campaign) -> str:
    return str(Campaign.objects.get(pk=made.pk).state)


def _counts(made: Campaign) -> tuple[int, int, dict[str, int]]:
    view = cast.progress_of(made)
    return view.matches, view.redriven, dict(view.skipped)


# What it chooses


def test_a_campaign_redrives_all_that_its_filter_chooses() -> None:
    ids = cast.graveyard(30)
    other = cast.buried(now=at(5), error_class="uncertain")
    made = cast.campaign(now=at(9))
    assert made.first_matches == 30
    _run(made)
    assert {cast.place(job_id) for job_id in ids} == {"readyjob"}
    assert cast.place(other) == "deadletter"
    assert (_state(made), _counts(made)) == ("done", (30, 30, {}))
    assert list(fsck.check()) == []


def test_a_campaign_keeps_identity_and_raises_the_redrive_generation() -> None:
    job_id = cast.buried(request_key="k")
    made = cast.campaign(now=at(9))
    _run(made)
    ready = cast.row("queue_readyjob", job_id)
    assert (ready["redrive_generation"], ready["attempt"], ready["generation"]) == (1, 0, 1)
    assert Redrive.objects.using(SHARD).get(job_id=job_id).campaign_id == made.pk


@pytest.mark.parametrize("name", ["queue", "reason", "kind", "fingerprint", "failed_before", "job_ids"])
def test_each_condition_narrows(name: str) -> None:
    other = cast.queue("other")
    cast.buried(now=at(20), kind="b", error_class="uncertain")
    wanted = cast.buried(now=at(0), kind="a", queue=other)
    view = reads.dead_letter(wanted, scope=FLEET)
    conditions = {
        "queue": CampaignFilter(queue_id=other.id),
        "reason": CampaignFilter(reason=view.reason),
        "kind": CampaignFilter(kind="a"),
        "fingerprint": CampaignFilter(fingerprint=view.fingerprint),
        "failed_before": CampaignFilter(failed_before=at(10)),
        "job_ids": CampaignFilter(job_ids=(wanted,)),
    }
    made = cast.campaign(now=at(30), chosen=conditions[name])
    _run(made, start=31)
    assert _counts(made) == (1, 1, {})
    assert cast.place(wanted) == "readyjob"


def test_an_empty_filter_is_refused() -> None:
    for chosen in (CampaignFilter(), CampaignFilter(failed_since=at(0))):
        with pytest.raises(Invalid):
            cast.campaign(chosen=chosen)
    assert not Campaign.objects.exists()


def test_what_dies_after_the_start_is_not_in_it() -> None:
    cast.graveyard(3)
    made = cast.campaign(now=at(9))
    late = cast.buried(now=at(9))  # dead at 10
    _run(made, start=20)
    assert _counts(made) == (3, 3, {})
    assert cast.place(late) == "deadletter"


def test_a_job_that_dies_again_is_not_redriven_again() -> None:
    (job_id,) = cast.graveyard(1)
    made = cast.campaign(now=at(9), rate_per_s=1)
    pacing.advance(now=at(11))
    cast.fail(cast.claim_one(now=at(12)), now=at(13))
    _run(made, start=14)
    assert cast.place(job_id) == "deadletter"
    view = cast.progress_of(made)
    assert (view.redriven, view.failed) == (1, 1)


def test_a_clock_that_was_set_back_redrives_nothing_twice() -> None:
    """What died again before the freeze, by a clock that jumped, was redriven by this campaign already."""
    (job_id,) = cast.graveyard(1)
    cast.campaign(now=at(50))
    pacing.advance(now=at(51))
    CampaignPart.objects.using(SHARD).update(is_exhausted=False, seen_to=0)
    Campaign.objects.update(state="running")
    CampaignPart.objects.using(SHARD).update(is_open=True)
    cast.fail(cast.claim_one(now=at(2)), now=at(3))
    pacing.advance(now=at(60))
    assert cast.place(job_id) == "deadletter"
    assert Redrive.objects.using(SHARD).filter(job_id=job_id).count() == 1


def test_a_tenant_s_campaign_touches_its_own_alone() -> None:
    mine = cast.buried()
    theirs = cast.buried(now=at(4), tenant_id=globex().pk)
    made = cast.campaign(now=at(9), scope=cast.mallory())
    _run(made)
    assert (cast.place(mine), cast.place(theirs)) == ("deadletter", "readyjob")


def test_a_campaign_of_a_narrow_token_stays_in_its_queues() -> None:
    other = cast.queue("other")
    outside, inside = cast.buried(), cast.buried(now=at(4), queue=other)
    made = cast.campaign(now=at(9), scope=Scope(acme().pk, (other.id,)))
    _run(made)
    assert (cast.place(outside), cast.place(inside)) == ("deadletter", "readyjob")


def test_a_campaign_is_not_there_for_another_tenant_or_a_narrower_token() -> None:
    cast.buried()
    made = cast.campaign(now=at(9), scope=cast.scope_of(acme()))
    for scope in (cast.mallory(), Scope(acme().pk, (1,))):
        with pytest.raises(NotFound):
            campaigns.get(made.pk, scope=scope)
        with pytest.raises(NotFound):
            campaigns.abort(made.pk, scope=scope, actor=OPS)
    assert _state(made) == "running"


# What it leaves where it is


def test_skips_are_counted_by_reason_and_stay() -> None:
    thrifty = cast.queue("thrifty", max_redrives=1)
    uncorrected = cast.graveyard(3, error_class="permanent", kind="mixed")
    late = cast.buried(now=at(2), deadline=at(8), kind="mixed")
    spent = cast.buried(now=at(4), queue=thrifty, kind="mixed")
    cast.redriven(spent, now=at(6), max_attempts=1)
    cast.fail(cast.claim_one(thrifty, now=at(7)), now=at(8))
    good = cast.graveyard(4, now=at(8), kind="mixed")
    expected = {"correction_required": 3, "deadline_in_past": 1, "redrive_limit": 1}
    chosen = CampaignFilter(kind="mixed")
    preview = campaigns.preview(chosen, scope=FLEET, now=at(10))
    assert (preview.matches, dict(preview.would_skip)) == (9, expected)
    made = cast.campaign(now=at(10), chosen=chosen)
    _run(made, start=11)
    assert _counts(made) == (9, 4, expected)
    assert {cast.place(job_id) for job_id in (*uncorrected, late, spent)} == {"deadletter"}
    assert {cast.place(job_id) for job_id in good} == {"readyjob"}


def test_what_was_corrected_goes_back_with_its_correction() -> None:
    job_id = cast.buried(error_class="permanent")
    cast.correct(job_id, payload='"new"')
    _run(cast.campaign(now=at(9), chosen=CampaignFilter(reason="invalid")))
    assert cast.claim_one(now=at(99)).payload == '"new"'


def test_what_somebody_else_redrove_meanwhile_is_counted_as_such() -> None:
    ids = cast.graveyard(5)
    made = cast.campaign(now=at(9))
    cast.redriven(ids[2], now=at(10))
    _run(made)
    assert _counts(made) == (5, 4, {"already_redriven": 1})


def test_a_preview_changes_nothing() -> None:
    ids = cast.graveyard(3)
    with cast.changes_nothing(*ids):
        campaigns.preview(EXHAUSTED, scope=FLEET, now=at(9))
    assert not Campaign.objects.exists()


# Pace


def test_the_rate_bounds_what_a_second_redrives() -> None:
    cast.graveyard(60)
    made = cast.campaign(now=at(10), rate_per_s=20)
    done = [pacing.advance(now=at(10 + 0.25 * turn)) for turn in range(1, 13)]
    assert done == [5] * 12
    assert cast.progress_of(made).redriven == 60


def test_a_pause_of_the_dispatcher_earns_one_second_at_most() -> None:
    cast.graveyard(60)
    cast.campaign(now=at(10), rate_per_s=20)
    assert pacing.advance(now=at(1_000)) == 20


def test_an_estimate_follows_the_rate() -> None:
    cast.graveyard(60)
    made = cast.campaign(now=at(10), rate_per_s=20)
    assert cast.progress_of(made).eta_s == 3
    pacing.advance(now=at(11))
    assert cast.progress_of(made).eta_s == 2


def test_rare_matches_are_found_across_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "WINDOW_IDS", 4)
    cast.graveyard(9, kind="many")
    rare = cast.graveyard(2, now=at(2), kind="rare")
    cast.graveyard(5, now=at(4), kind="many")
    made = cast.campaign(now=at(9), chosen=CampaignFilter(kind="rare"))
    for second in range(6):
        pacing.advance(now=at(10 + second))
    assert (_state(made), _counts(made)) == ("done", (2, 2, {}))
    assert {cast.place(job_id) for job_id in rare} == {"readyjob"}


# Canary and brake


def _ended(made: Campaign, count: int, *, now: float, succeed: bool = True) -> None:
    held = cast.claim(now=at(now), limit=100)
    assert len(held) == count
    for lease in held:
        if succeed:
            cast.complete(lease, now=at(now + 1))
        else:
            cast.fail(lease, now=at(now + 1))


def test_the_canary_goes_first_and_the_rest_waits_for_it() -> None:
    cast.graveyard(30)
    made = cast.campaign(now=at(9), canary=4)
    for second in (10, 11, 12):
        pacing.advance(now=at(second))
    assert cast.progress_of(made).redriven == 4
    _ended(made, 4, now=13)
    for second in (15, 16, 17):
        pacing.advance(now=at(second))
    view = cast.progress_of(made)
    assert (view.redriven, view.succeeded, view.campaign.state) == (30, 4, "done")


def test_a_canary_that_fails_stops_the_campaign() -> None:
    cast.graveyard(30)
    made = cast.campaign(now=at(9), canary=4, stop_at_failure_share=0.5)
    pacing.advance(now=at(10))
    _ended(made, 4, now=13, succeed=False)
    for second in (15, 16, 17):
        pacing.advance(now=at(second))
    view = cast.progress_of(made)
    assert (view.campaign.state, view.redriven, view.failed) == ("stopped", 4, 4)


def test_a_canary_larger_than_the_matches_ends_with_them() -> None:
    cast.graveyard(3)
    made = cast.campaign(now=at(9), canary=100)
    pacing.advance(now=at(10))
    _ended(made, 3, now=11)
    pacing.advance(now=at(13))
    pacing.advance(now=at(14))
    assert _state(made) == "done"


def test_a_canary_of_skips_alone_does_not_hold_up() -> None:
    cast.graveyard(3, error_class="permanent")
    made = cast.campaign(now=at(9), canary=2, chosen=CampaignFilter(reason="invalid"))
    for second in (10, 11, 12):
        pacing.advance(now=at(second))
    assert (_state(made), _counts(made)) == ("done", (3, 0, {"correction_required": 3}))


def test_the_failure_share_stops_it_under_way() -> None:
    cast.graveyard(80)
    made = cast.campaign(now=at(9), rate_per_s=40, stop_at_failure_share=0.5)
    pacing.advance(now=at(10))
    _ended(made, 40, now=11, succeed=False)
    assert pacing.advance(now=at(13)) <= 40
    assert _state(made) == "stopped"
    redriven = cast.progress_of(made).redriven
    assert pacing.advance(now=at(20)) == 0
    assert cast.progress_of(made).redriven == redriven


def test_a_few_failures_alone_do_not_stop_it() -> None:
    cast.graveyard(30)
    made = cast.campaign(now=at(9), rate_per_s=5, stop_at_failure_share=0.01)
    pacing.advance(now=at(10))
    _ended(made, 5, now=11, succeed=False)
    pacing.advance(now=at(13))
    assert _state(made) == "running"


def test_a_stopped_campaign_that_is_resumed_is_judged_anew() -> None:
    cast.graveyard(30)
    made = cast.campaign(now=at(9), canary=4, stop_at_failure_share=0.5)
    pacing.advance(now=at(10))
    _ended(made, 4, now=11, succeed=False)
    pacing.advance(now=at(13))
    assert _state(made) == "stopped"
    campaigns.resume(made.pk, scope=FLEET, actor=OPS)
    for second in (14, 15, 16):
        pacing.advance(now=at(second))
    view = cast.progress_of(made)
    assert (view.campaign.state, view.redriven) == ("done", 30)


def test_outcomes_are_learnt_after_the_end_too() -> None:
    cast.graveyard(6)
    made = cast.campaign(now=at(9))
    _run(made)
    held = cast.claim(now=at(50), limit=6)
    for lease in held[:3]:
        cast.complete(lease, now=at(51))
    cast.fail(held[3], now=at(51))
    cast.cancel(held[4].job_id, now=at(51))
    cast.fail(held[4], now=at(52))
    pacing.follow()
    view = cast.progress_of(made)
    assert (view.succeeded, view.failed, view.ended) == (3, 1, 1)


def test_outcomes_are_learnt_going_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FOLLOW_LIMIT", 2)
    cast.graveyard(5)
    made = cast.campaign(now=at(9))
    _run(made)
    held = sorted(cast.claim(now=at(50), limit=5), key=lambda lease: lease.job_id)
    for lease in (held[4], held[0]):
        cast.complete(lease, now=at(51))
    for _ in range(4):
        pacing.follow()
    assert cast.progress_of(made).succeeded == 2


def test_campaigns_that_wait_keep_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than one pass serves, and their jobs never end."""
    monkeypatch.setattr(pacing, "CAMPAIGNS_MAX", 1)
    for kind in ("stuck", "lively"):
        cast.buried(kind=kind)
    waiting = cast.campaign(now=at(9), chosen=CampaignFilter(kind="stuck"), canary=1)
    lively = cast.campaign(now=at(9), chosen=CampaignFilter(kind="lively"), canary=1)
    for second in range(60):
        pacing.advance(now=at(10 + second))
        for lease in cast.claim(now=at(10 + second), kinds=("lively",)):
            cast.complete(lease, now=at(10 + second))
    assert (_state(waiting), _state(lively)) == ("running", "done")


# People


def test_nothing_is_redriven_while_it_is_paused() -> None:
    cast.graveyard(30)
    made = cast.campaign(now=at(9), rate_per_s=10)
    pacing.advance(now=at(10))
    assert campaigns.pause(made.pk, scope=FLEET, actor=OPS).campaign.state == "paused"
    assert pacing.advance(now=at(20)) == 0
    assert cast.progress_of(made).eta_s is None
    campaigns.resume(made.pk, scope=FLEET, actor=OPS)
    assert pacing.advance(now=at(21)) == 10


def test_a_dispatcher_that_did_not_hear_of_the_pause_is_stopped_by_the_part() -> None:
    cast.graveyard(3)
    made = cast.campaign(now=at(9))
    campaigns.pause(made.pk, scope=FLEET, actor=OPS)
    assert pacing._step(made, at(20)) == 0  # it read the campaign before the pause
    assert cast.progress_of(made).redriven == 0


def test_an_aborted_campaign_is_over() -> None:
    ids = cast.graveyard(30)
    made = cast.campaign(now=at(9), rate_per_s=10)
    pacing.advance(now=at(10))
    campaigns.abort(made.pk, scope=FLEET, actor=OPS)
    assert pacing.advance(now=at(20)) == 0
    for verb in (campaigns.pause, campaigns.resume, campaigns.abort):
        with pytest.raises(AlreadyFinished):
            verb(made.pk, scope=FLEET, actor=OPS)
    assert sorted(cast.place(job_id) for job_id in ids) == ["deadletter"] * 20 + ["readyjob"] * 10


def test_a_verb_that_is_done_already_changes_nothing() -> None:
    cast.graveyard(3)
    made = cast.campaign(now=at(9))
    campaigns.pause(made.pk, scope=FLEET, actor=OPS)
    version = Campaign.objects.get().version
    campaigns.pause(made.pk, scope=FLEET, actor=OPS)
    assert (Campaign.objects.get().version, _state(made)) == (version, "paused")


# Audit and keys


def test_every_redrive_and_every_step_is_audited() -> None:
    ids = cast.graveyard(3)
    cast.buried(now=at(4), tenant_id=globex().pk)
    made = cast.campaign(now=at(9))
    campaigns.pause(made.pk, scope=FLEET, actor=OPS, reason="lunch")
    campaigns.resume(made.pk, scope=FLEET, actor=OPS)
    _run(made)
    entries = cast.read(
        "SELECT actor, reason, details->>'campaign' FROM tenants_auditentry WHERE action = 'job.redrive'"
    )
    assert entries == [(OPS, "the receiver is back", str(made.pk))] * 4
    audit_id = Redrive.objects.using(SHARD).get(job_id=ids[1]).audit_id
    assert cast.read("SELECT target FROM tenants_auditentry WHERE id = %s", [audit_id]) == [
        (f"job:0-{ids[1]}",)
    ]
    steps = cast.read(
        "SELECT action FROM tenants_auditentry WHERE target LIKE 'campaign:%%' ORDER BY id", alias="default"
    )
    assert [action for (action,) in steps] == [
        "campaign.create",
        "campaign.pause",
        "campaign.resume",
        "campaign.done",
    ]


def test_a_repeat_with_the_same_key_is_the_first_campaign() -> None:
    cast.graveyard(3)
    made = cast.campaign(now=at(9), idempotency_key="k")
    assert cast.campaign(now=at(12), idempotency_key="k").pk == made.pk
    with pytest.raises(KeyConflict):
        cast.campaign(now=at(12), idempotency_key="k", rate_per_s=7)
    assert Campaign.objects.count() == 1


def test_a_key_belongs_to_its_tenant() -> None:
    cast.buried()
    made = cast.campaign(now=at(9), idempotency_key="k", scope=cast.scope_of(acme()))
    assert cast.campaign(now=at(9), idempotency_key="k", scope=cast.mallory()).pk != made.pk


def test_a_key_is_free_after_a_day() -> None:
    cast.buried()
    made = cast.campaign(now=at(9), idempotency_key="k")
    Campaign.objects.update(created_at=Now() - campaigns.KEY_WINDOW)
    assert cast.campaign(now=at(9), idempotency_key="k", rate_per_s=7).pk != made.pk


def test_a_campaign_whose_maker_died_before_its_parts_were_made_goes_on() -> None:
    cast.graveyard(6)
    made = cast.campaign(now=at(9), canary=2)
    CampaignPart.objects.using(SHARD).all().delete()
    pacing.advance(now=at(10))
    assert cast.progress_of(made).redriven == 2


def test_a_count_beyond_the_cap_says_so_and_becomes_exact_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq.parts.MATCHES_COUNTED_MAX", 5)
    cast.graveyard(8)
    made = cast.campaign(now=at(9))
    assert (made.first_matches, made.is_capped) == (5, True)
    _run(made)
    view = cast.progress_of(made)
    assert (view.matches, view.is_capped, view.redriven) == (8, False, 8)


# A shard that is away


def _add_shard_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on there is a second shard, and it answers nothing."""
    rows = sql.rows

    def refusing(statement: str, params: Any, *, alias: str, writes: bool = False) -> list[sql.Row]:
        if alias == "away":
            raise Unavailable
        return rows(statement, params, alias=alias, writes=writes)

    monkeypatch.setattr(sql, "rows", refusing)
    monkeypatch.setattr(database, "aliases", lambda: {0: SHARD, 1: "away"})


def test_a_campaign_goes_on_where_it_can_and_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    cast.graveyard(30)
    _add_shard_that_is_away(monkeypatch)
    made = cast.campaign(now=at(9), rate_per_s=20)
    assert made.first_matches == 30
    assert pacing.advance(now=at(10)) == 10  # each of two shards has half the rate
    for second in range(11, 20):
        pacing.advance(now=at(second))
    view = cast.progress_of(made)
    assert (view.redriven, view.campaign.state, list(view.unknown_shards)) == (30, "running", [1])


def test_a_pause_says_which_shard_it_did_not_reach_and_holds_on_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cast.graveyard(3)
    _add_shard_that_is_away(monkeypatch)
    made = cast.campaign(now=at(9))
    with pytest.raises(Unavailable, match="not reached: 1"):
        campaigns.pause(made.pk, scope=FLEET, actor=OPS)
    assert _state(made) == "paused"
    assert pacing._step(made, at(20)) == 0


def test_a_shard_that_comes_back_hears_what_was_said_meanwhile() -> None:
    cast.graveyard(5)
    made = cast.campaign(now=at(9), canary=2)
    pacing.advance(now=at(10))
    _ended(made, 2, now=11)
    CampaignPart.objects.using(SHARD).update(version=0)  # it was away when something was said
    for second in (20, 21, 22):
        pacing.advance(now=at(second))
    part = CampaignPart.objects.using(SHARD).get()
    assert (part.ceiling, part.redriven, _state(made)) == (None, 5, "done")
