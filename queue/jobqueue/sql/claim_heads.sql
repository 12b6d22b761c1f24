-- claim_heads: what a claim may take now, lane by lane from the head.
-- params: queue_id, kinds, max_priority, tenant_id, depth (jobs a lane), heads (jobs over all), probes (lanes), now
-- returns lane, its band, tenant and kind, the tenant's room (null: no limit), and one row a job
WITH {clock},
    lanes AS MATERIALIZED (
        SELECT l.id, l.priority, l.tenant_id, l.kind, l.low, t.max_running
        FROM queue_lane l
        JOIN queue_policyrow p ON p.queue_id = l.queue_id AND NOT p.is_dispatch_paused
        LEFT JOIN tenants_tenantstate t ON t.tenant_id = l.tenant_id
        WHERE l.queue_id = %(queue_id)s::bigint AND l.is_active
            AND (%(max_priority)s::int IS NULL OR l.priority <= %(max_priority)s::int)
            AND (%(kinds)s::text[] IS NULL OR l.kind = ANY(%(kinds)s::text[]))
            AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
            AND NOT coalesce(t.is_paused, false)
            AND (t.max_running IS NULL
                 OR l.tenant_id = ANY(current_setting('jobsplatform.held_tenants')::bigint[]))
        ORDER BY l.priority, random()
        LIMIT %(probes)s::int
    ),
    bound AS MATERIALIZED (
        SELECT least(%(depth)s::int, greatest(1, %(heads)s::int / greatest(count(*), 1)))::int AS depth FROM lanes
    ),
    limited AS MATERIALIZED (
        SELECT x.tenant_id, greatest(0, x.max_running - (
            SELECT count(*) FROM queue_lease s JOIN queue_lane k ON k.id = s.lane_id WHERE k.tenant_id = x.tenant_id
        )) AS room
        FROM (SELECT DISTINCT tenant_id, max_running FROM lanes WHERE max_running IS NOT NULL) x
    )
SELECT l.id, l.priority, l.tenant_id, l.kind, m.room, h.job_id, h.position, h.fresh
FROM lanes l
LEFT JOIN limited m ON m.tenant_id = l.tenant_id
CROSS JOIN LATERAL (
    (SELECT r.job_id, r.position, r.fresh FROM queue_readyjob r
     WHERE r.lane_id = l.id AND NOT r.fresh AND (r.deadline IS NULL OR r.deadline > (SELECT at FROM clock))
     ORDER BY r.position, r.job_id LIMIT (SELECT depth FROM bound))
    UNION ALL
    (SELECT r.job_id, r.position, r.fresh FROM queue_readyjob r
     WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
        AND (r.deadline IS NULL OR r.deadline > (SELECT at FROM clock))
     ORDER BY r.position, r.job_id LIMIT (SELECT depth FROM bound))
    LIMIT least((SELECT depth FROM bound), m.room)
) h
