"""Queues: made from presets, changed within bounds, paused, and told to the shard."""

from __future__ import annotations

import time

import pytest

from jobqueue import policies
from jobqueue.models import PolicyRow, Queue
from jobqueue.types import FLEET, Scope
from jobsplatform.errors import Invalid, NotFound
from tests import cast
from tests.cast import OPS, SHARD

pytestmark = pytest.mark.django_db


def _told(name: str) -> PolicyRow:
    return PolicyRow.objects.using(SHARD).get(name=name)


def test_the_default_queue_is_there_from_the_beginning() -> None:
    queue = policies.by_name("default")
    assert [band.name for band in queue.bands] == ["P0", "P1", "P2", "P3", "P4"]
    assert queue.default_priority == 2
    assert Queue.objects.get(name="default").preset == "five"


def test_the_defaults_are_the_contract_s() -> None:
    queue = cast.queue("fresh")
    assert (queue.lease_s, queue.max_run_s, queue.max_attempts, queue.max_crashes) == (30, 43_200, 5, 3)
    assert (queue.max_releases, queue.backoff_base_s, queue.backoff_cap_s) == (None, 2, 3_600)
    assert (queue.max_redrives, queue.key_window_s, queue.dedup_window_s) == (10, 1_209_600, 600)
    assert queue.retention_s == 2_592_000


@pytest.mark.parametrize(
    ("preset", "bands", "default"),
    [
        ("five", [("P0", True), ("P1", False), ("P2", False), ("P3", False), ("P4", False)], 2),
        ("hnl", [("H", False), ("N", False), ("L", False)], 1),
        ("high-normal", [("high", False), ("normal", False)], 1),
    ],
)
def test_a_preset_names_its_bands(preset: str, bands: list[tuple[str, bool]], default: int) -> None:
    queue = cast.queue("made", preset=preset)
    assert [(band.name, band.strict) for band in queue.bands] == bands
    assert queue.default_priority == default


def test_a_new_queue_is_known_to_the_shard_at_once() -> None:
    cast.queue("made", lease_s=77)
    assert _told("made").lease_s == 77


def test_an_absent_name_is_never_remembered() -> None:
    with pytest.raises(NotFound):
        policies.by_name("soon")
    cast.queue("soon")
    assert policies.by_name("soon").name == "soon"


def test_a_change_elsewhere_is_seen_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    cast.queue("made", lease_s=30)
    Queue.objects.filter(name="made").update(lease_s=31)  # another process did it
    assert policies.by_name("made").lease_s == 30
    moment = time.monotonic()
    monkeypatch.setattr("jobqueue.policies.time.monotonic", lambda: moment + 5.01)
    assert policies.by_name("made").lease_s == 31


@pytest.mark.parametrize("name", ["", "Made", "a b", "-a", "a" * 65, "a\n", "ä", "a/b"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        policies.create_queue(name, actor=OPS)
    assert refused.value.errors[0].pointer == "/name"


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(Invalid):
        policies.create_queue("default", actor=OPS)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(Invalid) as refused:
        policies.create_queue("made", preset="seven", actor=OPS)
    assert refused.value.errors[0].pointer == "/preset"


BOUNDS = {
    "lease_s": (1, 43_200),
    "max_run_s": (1, 604_800),
    "max_attempts": (1, 100),
    "max_crashes": (1, 100),
    "max_releases": (1, 1_000_000),
    "backoff_base_s": (0.1, 86_400),
    "backoff_cap_s": (0.1, 86_400),
    "max_redrives": (1, 1_000),
    "retry_budget_share": (0, 10),
    "retry_budget_window_s": (1, 3_600),
    "retry_budget_burst": (0, 1_000_000),
    "ageing_s": (1, 604_800),
    "reserved_share": (0, 0.5),
    "dedup_window_s": (60, 2_592_000),
    "key_window_s": (60, 2_592_000),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_setting_takes_its_bounds_and_nothing_beyond(name: str) -> None:
    low, high = BOUNDS[name]
    queue = cast.queue("made")
    for value in (low, high):
        policies.change_queue(queue.name, {name: value}, actor=OPS)
        assert getattr(Queue.objects.get(name="made"), name) == value
    for value in (low - 1 if isinstance(low, int) else low - 0.01, high + 1):
        with pytest.raises(Invalid) as refused:
            policies.change_queue(queue.name, {name: value}, actor=OPS)
        assert refused.value.errors[0].pointer == f"/{name}"
    assert getattr(Queue.objects.get(name="made"), name) == high


@pytest.mark.parametrize(("name", "low"), [("depth_limit", 1), ("retention_s", 3_600)])
def test_a_setting_without_an_upper_bound_has_a_lower_one(name: str, low: int) -> None:
    cast.queue("made")
    policies.change_queue("made", {name: low}, actor=OPS)
    with pytest.raises(Invalid):
        policies.change_queue("made", {name: low - 1}, actor=OPS)


@pytest.mark.parametrize("name", ["speed", "name", "id", "version", "preset", "is_intake_paused"])
def test_what_is_no_setting_is_refused(name: str) -> None:
    cast.queue("made")
    with pytest.raises(Invalid) as refused:
        policies.change_queue("made", {name: 1}, actor=OPS)
    assert refused.value.errors[0].pointer == f"/{name}"


def test_a_refused_change_changes_nothing() -> None:
    cast.queue("made")
    with pytest.raises(Invalid):
        policies.change_queue("made", {"lease_s": 60, "max_attempts": 0}, actor=OPS)
    assert policies.by_name("made").lease_s == 30
    assert _told("made").lease_s == 30


def test_a_change_has_a_version_and_an_audit_entry() -> None:
    before = cast.queue("made").version
    policies.change_queue("made", {"lease_s": 60}, actor=OPS, reason="slow supplier")
    assert _told("made").version == before + 1
    entries = cast.read(
        "SELECT actor, reason FROM tenants_auditentry WHERE action = 'queue.change'", alias="default"
    )
    assert entries == [(OPS, "slow supplier")]


def test_an_older_version_never_overwrites_a_newer() -> None:
    cast.queue("made")
    old = Queue.objects.get(name="made")
    policies.change_queue("made", {"lease_s": 60}, actor=OPS)
    assert policies.push(old) == []
    assert _told("made").lease_s == 60


def test_an_unknown_queue_is_not_found() -> None:
    for verb in (policies.pause, policies.resume):
        with pytest.raises(NotFound):
            verb("nothing", actor=OPS)
    with pytest.raises(NotFound):
        policies.change_queue("nothing", {}, actor=OPS)


@pytest.mark.parametrize(
    ("intake", "verbs"), [(False, ["pause", "resume"]), (True, ["pause_intake", "resume_intake"])]
)
def test_pauses_reach_the_shard_and_the_audit(intake: bool, verbs: list[str]) -> None:
    cast.queue("made")
    column = "is_intake_paused" if intake else "is_dispatch_paused"
    policies.pause("made", intake=intake, actor=OPS)
    assert getattr(_told("made"), column)
    policies.resume("made", intake=intake, actor=OPS)
    assert not getattr(_told("made"), column)
    assert [cast.audited(f"queue.{verb}", alias="default") for verb in verbs] == [1, 1]


@pytest.mark.parametrize(("asked", "index"), [(None, 2), (0, 0), (4, 4), ("P0", 0), ("P4", 4)])
def test_a_band_is_named_by_index_or_name(asked: int | str | None, index: int) -> None:
    assert policies.by_name("default").priority(asked) == index


@pytest.mark.parametrize("asked", [-1, 5, True, "p0", "", "0"])
def test_a_band_that_the_queue_does_not_have_is_refused(asked: int | str) -> None:
    with pytest.raises(Invalid) as refused:
        policies.by_name("default").priority(asked)
    assert refused.value.errors[0].pointer == "/priority"


def test_a_caller_sees_the_queues_that_it_may_use() -> None:
    made = cast.queue("made")
    assert [queue.name for queue in policies.visible(FLEET)] == ["default", "made"]
    assert [queue.name for queue in policies.visible(Scope(queue_ids=(made.id,)))] == ["made"]
    assert policies.visible(Scope(queue_ids=())) == ()
