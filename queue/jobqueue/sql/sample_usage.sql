-- sample_usage: count what is in use of limits that were not counted for most of a minute; the hour keeps the most.
-- params: limit, bound (a count goes no further), now
-- returns how many limits were counted.  locks: their hours, in key order
-- plan: by index
WITH {clock},
    a AS MATERIALIZED (
        SELECT m.tenant_id, m.queue, coalesce(m.band, -1::smallint) AS band, p.queue_id,
            date_trunc('hour', k.at) AS hour, k.at
        FROM tenants_tenantlimit m
        CROSS JOIN clock k
        LEFT JOIN queue_policyrow p ON p.name = m.queue
        LEFT JOIN tenants_usagehour u ON u.tenant_id = m.tenant_id AND u.queue = m.queue
            AND u.band = coalesce(m.band, -1) AND u.hour = date_trunc('hour', k.at)
        WHERE num_nonnulls(m.max_running, m.max_depth) > 0
            AND (u.sampled_at IS NULL OR u.sampled_at <= k.at - interval '50 seconds')
        ORDER BY u.sampled_at NULLS FIRST, m.tenant_id, m.queue, m.band
        LIMIT %(limit)s::int
    ),
    counted AS (
        INSERT INTO tenants_usagehour AS h (tenant_id, queue, band, hour, running, waiting, sampled_at)
        SELECT a.tenant_id, a.queue, a.band, a.hour, r.running, w.waiting, a.at
        FROM a
        CROSS JOIN LATERAL (
            SELECT count(*) AS running FROM (
                SELECT FROM {scope_lanes} n JOIN queue_lease s ON s.lane_id = n.id LIMIT %(bound)s::int
            ) leases
        ) r
        CROSS JOIN LATERAL (
            SELECT count(*) AS waiting FROM (
                SELECT FROM {scope_lanes} n
                CROSS JOIN LATERAL (
                    SELECT FROM queue_readyjob r WHERE r.lane_id = n.id
                    UNION ALL
                    SELECT FROM queue_scheduledjob d WHERE d.lane_id = n.id
                ) one
                LIMIT %(bound)s::int
            ) jobs
        ) w
        ORDER BY a.tenant_id, a.queue, a.band
        ON CONFLICT (tenant_id, queue, band, hour) DO UPDATE SET
            running = greatest(h.running, excluded.running), waiting = greatest(h.waiting, excluded.waiting),
            sampled_at = greatest(h.sampled_at, excluded.sampled_at)
        RETURNING 1
    )
SELECT count(*) FROM counted
