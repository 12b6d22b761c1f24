"""How long a claim takes, and on what that depends: tenants, backlog, a paused tenant at the head, limits.

All cases lie in one database, each in a queue of its own, and are claimed from in turns; what a claim took is
completed and enqueued anew outside the measured time. `p50 ratio`: to the first case with the same limit.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import ground


def main() -> None:
    asked = ground.arguments(__doc__, claims=300, tenants=10_000, ready=1_000_000, paused=33_000)
    with ground.ground():
        rows = measured(make(asked), asked.claims)
    ground.show("Claim latency", rows, asked.json)


def make(asked: Any) -> list[tuple[str, str]]:
    """The cases: words and the queue's name."""
    from jobqueue import policies
    from tenants import registry

    many = _tenants(asked.tenants)
    alone = registry.create_tenant("alone", actor="bench").pk
    paused = registry.create_tenant("paused", actor="bench")
    limited = [10_000_000 + index for index in range(asked.tenants)]
    full = [20_000_000 + index for index in range(500)]
    _limit(limited, 1_000_000)
    _limit(full, 0)
    cases: list[tuple[str, str, list[tuple[list[int], int, int]]]] = [
        ("1 tenant, 1,000 ready", "small", [([alone], 1_000, 0)]),
        (f"1 tenant, {asked.ready:,} ready", "deep", [([alone], asked.ready, 0)]),
        (f"{asked.tenants:,} tenants, one ready each", "wide", [(many, 1, 0)]),
        (
            f"{asked.tenants:,} tenants, {asked.ready:,} ready",
            "both",
            [(many, asked.ready // asked.tenants, 0)],
        ),
        (
            f"{asked.paused:,} of a paused tenant before 1,000 ready",
            "behind",
            [([paused.pk], asked.paused, 3_600), ([alone], 1_000, 0)],
        ),
        (f"{asked.tenants:,} tenants with a running limit", "limited", [(limited, 1, 0)]),
        ("500 tenants at their limit before 1,000 ready", "full", [(full, 1, 0), ([30_000_000], 1_000, 0)]),
    ]
    for _, name, parts in cases:
        policies.create_queue(name, actor="bench")
        for tenant_ids, jobs, age_s in parts:
            ground.fill(name, tenant_ids, jobs, age_s=age_s)
    registry.pause(paused.slug, actor="bench")
    ground.run("VACUUM ANALYZE")
    return [(words, name) for words, name, _ in cases]


def _tenants(count: int) -> list[int]:
    """Numbers of tenants that a shard meets in jobs alone; their names are not needed to claim."""
    return [1_000_000 + index for index in range(count)]


def _limit(tenant_ids: list[int], most: int) -> None:
    ground.run(
        "INSERT INTO tenants_tenantstate (tenant_id, version, weight, is_paused, limits_running, limits_intake)"
        " SELECT t, 1, 1, false, true, false FROM unnest(%s::bigint[]) t",
        [tenant_ids],
    )
    ground.run(
        "INSERT INTO tenants_tenantlimit (tenant_id, queue, max_running) SELECT t, '', %s FROM unnest(%s::bigint[]) t",
        [most, tenant_ids],
    )


def measured(cases: list[tuple[str, str]], claims: int) -> list[dict[str, Any]]:
    """p50 and p99 of each case and limit, in milliseconds."""
    from jobqueue import claiming, policies

    times: dict[tuple[int, str], list[float]] = {}
    for limit, rounds in ((1, claims), (100, claims // 3)):
        for round_ in range(-5, rounds):
            for _, name in cases:
                request = claiming.ClaimRequest(queues=(policies.by_name(name),), limit=limit, worker="bench")
                start = time.perf_counter()
                held = claiming.claim(request)
                took = (time.perf_counter() - start) * 1_000
                assert len(held) == limit, f"{name}: {len(held)} of {limit}"
                _replace(held, request.queues[0])
                if round_ >= 0:
                    times.setdefault((limit, name), []).append(took)
    rows = []
    for limit in (1, 100):
        base = ground.percentile(times[limit, cases[0][1]], 0.5)
        for words, name in cases:
            p50, p99 = (ground.percentile(times[limit, name], share) for share in (0.5, 0.99))
            rows.append(
                {"case": words, "limit": limit, "p50 ms": p50, "p99 ms": p99, "p50 ratio": p50 / base}
            )
    return rows


def _replace(held: list[Any], queue: Any) -> None:
    from jobqueue import leases
    from jobqueue.enqueue import NewJob, enqueue

    leases.complete([leases.Complete(one.job_id, one.generation, one.token) for one in held])
    enqueue(
        [
            NewJob(
                tenant_id=one.tenant_id,
                queue=queue,
                kind=one.kind,
                priority=one.priority,
                payload=ground.PAYLOAD,
            )
            for one in held
        ]
    )


if __name__ == "__main__":
    main()
