-- why_job: what holds a job that waits: its place in line, pauses, and who could take it.
-- params: job_id, capable_s (how far back a claim tells of a capable worker), now
-- returns one row for a job that is ready or scheduled: see `why._Facts`.  no row: it waits no longer
-- plan: by index
WITH {clock},
    waits AS MATERIALIZED (
        SELECT lane_id, fresh, position, deadline, NULL::timestamptz AS due_at, NULL::text AS reason,
            NULL::bigint AS budget_queue_id
        FROM queue_readyjob WHERE job_id = %(job_id)s::bigint
        UNION ALL
        SELECT lane_id, NULL, NULL, deadline, due_at, reason, budget_queue_id
        FROM queue_scheduledjob WHERE job_id = %(job_id)s::bigint
    )
SELECT w.fresh, w.position, w.deadline, w.due_at, w.reason, l.queue_id, l.priority, l.tenant_id, l.kind,
    p.is_dispatch_paused, coalesce(t.is_paused, false) AS is_tenant_paused,
    c.claim_class, c.kinds, c.max_priority,
    c.claim_class IS NOT NULL OR EXISTS (
        -- A worker that is busy with long jobs does not ask; what it runs tells what it can.
        SELECT FROM queue_lane k JOIN queue_lease s ON s.lane_id = k.id
        WHERE k.queue_id = l.queue_id AND k.priority >= l.priority AND k.kind = l.kind
            AND (s.token_id IS NULL OR k.tenant_id = l.tenant_id)
    ) AS is_capable,
    clock.at, l.dependency, CASE WHEN l.gated_until > clock.at THEN l.gated_until END,
    w.budget_queue_id IS NOT NULL AND w.due_at <= clock.at
FROM waits w
CROSS JOIN clock
JOIN queue_lane l ON l.id = w.lane_id
JOIN queue_policyrow p ON p.queue_id = l.queue_id
LEFT JOIN tenants_tenantstate t ON t.tenant_id = l.tenant_id
LEFT JOIN LATERAL (
    SELECT x.claim_class, x.kinds, x.max_priority FROM queue_claimclass x
    WHERE x.queue_id = l.queue_id AND x.seen_at > clock.at - %(capable_s)s::int * interval '1 second'
        AND (x.tenant_id IS NULL OR x.tenant_id = l.tenant_id)
        AND (x.kinds IS NULL OR l.kind = ANY(x.kinds))
        AND (x.max_priority IS NULL OR x.max_priority >= l.priority)
    ORDER BY x.tenant_id IS NOT NULL, x.seen_at DESC LIMIT 1
) c ON true
