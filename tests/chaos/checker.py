"""Joins what clients were told with what the database holds, and names every broken invariant of SCENARIOS.

Run it after the drain: every job has ended by then, so a job's attempts are all its leases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from jobqueue.ids import format_id
from tests.chaos.harness import Platform
from tests.chaos.load import History, Load

UNCHARGED = ("released", "lease_lost")  # a release never counts, a lapsed lease only when its job had begun


@dataclass(frozen=True, slots=True)
class Attempt:
    job: str
    generation: int
    attempt: int
    redrive_generation: int
    claimed_at: datetime
    ended_at: datetime
    outcome: str
    led_to: str


@dataclass
class Facts:
    """One tenant's rows."""

    keys: dict[str, list[str]]  # request key → jobs that hold or were made with it
    places: dict[str, list[str]]  # job → tables in which it stands
    attempts: dict[str, list[Attempt]]  # job → its attempts by generation
    limits: dict[str, int]  # job → max_attempts
    ledger: dict[str, int]
    results: dict[str, tuple[str, int, datetime]]  # job → outcome, generation, finished_at
    letters: dict[str, tuple[str, int]]  # job → reason, redrive generation
    deadlocks: int


def read(platform: Platform, tenant: str) -> Facts:
    owned = "WHERE tenant_id = (SELECT id FROM tenants_tenant WHERE slug = %s)"
    mine = f"WHERE job_id IN (SELECT id FROM queue_job {owned})"

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return platform.rows(statement, tenant)

    jobs = rows(f"SELECT id, request_key, max_attempts FROM queue_job {owned}")
    keys: dict[str, list[str]] = defaultdict(list)
    for job_id, key, _ in jobs:
        keys[key].append(format_id(job_id))
    places: dict[str, list[str]] = {format_id(job_id): [] for job_id, *_ in jobs}
    for table in ("queue_readyjob", "queue_scheduledjob", "queue_lease", "queue_result", "dlq_deadletter"):
        for (job_id,) in rows(f"SELECT job_id FROM {table} {mine}"):
            places[format_id(job_id)].append(table)
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    columns = "job_id, generation, attempt, redrive_generation, claimed_at, ended_at, outcome, led_to"
    for job_id, *rest in rows(f"SELECT {columns} FROM queue_attempt {mine} ORDER BY job_id, generation"):
        attempts[format_id(job_id)].append(Attempt(format_id(job_id), *rest))
    results = rows(f"SELECT job_id, outcome, generation, finished_at FROM queue_result {mine}")
    letters = rows(f"SELECT job_id, reason, redrive_generation FROM dlq_deadletter {mine}")
    return Facts(
        keys=keys,
        places=places,
        attempts=attempts,
        limits={format_id(job_id): most for job_id, _, most in jobs},
        ledger=_ledger(platform, tenant),
        results={format_id(job_id): (outcome, generation, at) for job_id, outcome, generation, at in results},
        letters={format_id(job_id): (reason, redrive) for job_id, reason, redrive in letters},
        deadlocks=int(platform.rows("SELECT sum(deadlocks) FROM pg_stat_database")[0][0] or 0),
    )


def _ledger(platform: Platform, tenant: str) -> dict[str, int]:
    counters = ("started", "succeeded", "lease_lost", "dead")
    sums = ", ".join(f"coalesce(sum(d.{name}), 0)" for name in counters)
    lanes = "(SELECT id FROM queue_lane WHERE tenant_id = (SELECT id FROM tenants_tenant WHERE slug = %s))"
    # one snapshot: folding moves counts from one table to the other
    both = " UNION ALL ".join(
        f"SELECT lane_id, {', '.join(counters)} FROM queue_{table}" for table in ("lanedelta", "laneminute")
    )
    row = platform.rows(f"SELECT {sums} FROM ({both}) d WHERE d.lane_id IN {lanes}", tenant)[0]
    return {name: int(value) for name, value in zip(counters, row, strict=True)}


def assert_sound(load: Load) -> None:
    """What every run must end with."""
    found = violations(load)
    print(f"{load.name}: {len(load.history.told)} answers {load.history.statuses()}")
    assert not found, "\n".join([f"{len(found)} violations", *found[:40]])


def violations(load: Load) -> list[str]:
    """Every broken invariant, each with its number."""
    facts, history = read(load.platform, load.name), load.history
    found = [
        *_answers(history, facts),
        *_enqueues(history, facts),
        *_generations(facts),
        *_settlements(history, facts),
        *_ends(facts),
        *_counters(facts),
        *_notes(load, facts),
    ]
    found += [
        f"fsck {fault['fault']} of {fault['job_id']}: {fault['detail']}" for fault in load.platform.fsck()
    ]
    return found


def _answers(history: History, facts: Facts) -> Iterator[str]:
    for one in history.told:
        status = one.answer.status
        if status >= 500 and status != 503:
            yield f"I22 {one.op} was answered {status}: {one.answer.body}"
        if status == 503 and one.answer.code not in ("unavailable", "unknown_outcome"):
            yield f"I22 {one.op} got a 503 of an unknown kind: {one.answer.body}"
        if status in (400, 401, 403, 404, 413, 415, 422, 429):
            yield f"I22 {one.op} was refused for no fault of its own: {one.answer.body}"
    if facts.deadlocks:
        yield f"I22 {facts.deadlocks} deadlocks"


def _enqueues(history: History, facts: Facts) -> Iterator[str]:
    acknowledged: dict[str, set[str]] = defaultdict(set)
    made: Counter[str] = Counter()
    for one in history.of("enqueue"):
        if one.answer.status in (200, 201):
            acknowledged[one.key].add(one.answer.body["job_id"])
            made[one.key] += one.answer.status == 201
        elif one.answer.status == 409:
            yield f"I2 key {one.key}: a conflict, though its content never changed"
    for key, jobs in acknowledged.items():
        if len(jobs) > 1 or made[key] > 1:
            yield f"I2 key {key} was acknowledged as {sorted(jobs)}, new {made[key]} times"
        if sorted(facts.keys.get(key, [])) != sorted(jobs):
            yield f"I1 key {key} was acknowledged as {sorted(jobs)}, the database has {facts.keys.get(key)}"
    asked = {one.key for one in history.of("enqueue")}
    for key, held in facts.keys.items():
        if len(held) > 1:
            yield f"I2 key {key} has {len(held)} jobs"
        if key not in asked:
            yield f"I1 job {held} was never asked for"


def _generations(facts: Facts) -> Iterator[str]:
    for job, attempts in facts.attempts.items():
        numbers = [one.generation for one in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"I4 the generations of {job} are {numbers}"
        for one in attempts:
            if not 1 <= one.attempt <= facts.limits[job]:
                yield f"I8 generation {one.generation} of {job} was attempt {one.attempt} of {facts.limits[job]}"
        for one, following in pairwise(attempts):
            if following.claimed_at < one.ended_at:
                yield f"I6 generations {one.generation} and {following.generation} of {job} overlap"
            if (
                one.led_to not in ("ready", "scheduled")
                and following.redrive_generation == one.redrive_generation
            ):
                yield f"I7 {job} went on after generation {one.generation} led to {one.led_to}"
            step = following.attempt - one.attempt
            if step not in ((0, 1) if one.outcome in UNCHARGED else (1,)) or (
                one.outcome == "released" and step
            ):
                yield f"I8 {job}: attempt {one.attempt} ({one.outcome}) was followed by {following.attempt}"


def _settlements(history: History, facts: Facts) -> Iterator[str]:
    by_lease = {(one.job, one.generation): one for attempts in facts.attempts.values() for one in attempts}
    outcomes = {"complete": "succeeded", "fail": "failed", "release": "released"}
    fresh: Counter[tuple[str, str, int]] = Counter()
    handed_out: Counter[tuple[str, int]] = Counter()
    tokens: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in history.of("claim"):
        for lease in one.answer.body["leases"] if one.answer.status == 200 else ():
            handed_out[lease["job_id"], lease["generation"]] += 1
            tokens[lease["job_id"], lease["generation"]].add(lease["lease_token"])
    for name, count in handed_out.items():
        if name not in by_lease:
            yield f"I4 a client got the lease {name}, of which the database knows nothing"
        if count > 1 or len(tokens[name]) > 1:  # the load never repeats a claim's key
            yield f"I6 the lease {name} was handed out {count} times"
    for one in history.of(*outcomes, "renew"):
        if one.answer.status != 200:
            continue
        attempt = by_lease.get((one.job, one.generation))
        if attempt is None:
            yield f"I5 {one.op} of generation {one.generation} of {one.job} was accepted, but no such lease ended"
        elif one.op == "renew":
            if attempt.outcome == "lease_lost" and attempt.ended_at < _instant(one.answer.body["expires_at"]):
                yield f"I6 {one.job} was taken back before the end that its renewal was promised"
        elif attempt.outcome != outcomes[one.op]:
            yield f"I5 {one.op} of {one.job} was accepted, but generation {one.generation} ended {attempt.outcome}"
        else:
            fresh[one.op, one.job, one.generation] += not one.answer.body["replayed"]
            if one.op == "complete" and _instant(one.answer.body["completed_at"]) != attempt.ended_at:
                yield f"I3 {one.job} was told {one.answer.body['completed_at']}, it ended at {attempt.ended_at}"
    for (op, job, generation), count in fresh.items():
        if count > 1:
            yield f"I3 {op} of generation {generation} of {job} was accepted as new {count} times"


def _ends(facts: Facts) -> Iterator[str]:
    for job, places in facts.places.items():
        if len(places) != 1 or places[0] not in ("queue_result", "dlq_deadletter"):
            yield f"I1 {job} stands in {places or 'no place'}"
        attempts = facts.attempts.get(job, [])
        completions = [one.generation for one in attempts if one.outcome == "succeeded"]
        if len(completions) > 1:
            yield f"I3 {job} was completed by the generations {completions}"
        if completions and (
            job not in facts.results or facts.results[job][:2] != ("succeeded", completions[0])
        ):
            yield f"I3 {job} was completed, its result is {facts.results.get(job)}"
        if job in facts.results and facts.results[job][0] == "succeeded" and not completions:
            yield f"I3 {job} has a result that no attempt brought"
        if job in facts.letters and (not attempts or attempts[-1].led_to != "dead"):
            yield f"I16 {job} is a dead letter, its last attempt led elsewhere"
        if attempts and attempts[-1].led_to == "dead" and job not in facts.letters:
            yield f"I16 {job} died without a dead letter"


def _counters(facts: Facts) -> Iterator[str]:
    attempts = [one for several in facts.attempts.values() for one in several]
    counted = {
        "started": len(attempts),
        "succeeded": sum(one.outcome == "succeeded" for one in attempts),
        "lease_lost": sum(one.outcome == "lease_lost" for one in attempts),
        "dead": sum(one.led_to == "dead" for one in attempts),
    }
    for name, count in counted.items():
        if facts.ledger[name] != count:
            yield f"I9 the ledger counts {facts.ledger[name]} {name}, there are {count}"


def _notes(load: Load, facts: Facts) -> Iterator[str]:
    """No generation runs twice, and a job runs again only after a lease that ended without success."""
    starts = Counter(
        tuple(line.split()[1:]) for line in load.notes.read_text().splitlines() if line.startswith("start")
    )
    for (job, generation), count in starts.items():
        if count > 1:
            yield f"I20 generation {generation} of {job} ran {count} times"
        ended = {str(one.generation): one.outcome for one in facts.attempts.get(job, [])}
        if generation not in ended:
            yield f"I20 generation {generation} of {job} ran, of which the database knows nothing"


def most_running(facts: Facts) -> int:
    """How many leases of the tenant were held at one instant, at most."""
    attempts = [one for several in facts.attempts.values() for one in several]
    steps = [(one.claimed_at, 1) for one in attempts] + [(one.ended_at, -1) for one in attempts]
    running = highest = 0
    for _, step in sorted(steps):
        running += step
        highest = max(highest, running)
    return highest


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
