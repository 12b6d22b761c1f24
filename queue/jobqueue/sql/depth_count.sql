-- depth_count: how many jobs wait or have a reservation in each scope, counted no further than a bound.
-- One statement: an insert turns a reservation into a waiting job, so that no snapshot misses one of the two.
-- params: tenant_ids, queues, bands (as in admit_limits), bounds
-- returns ord, count
-- plan: by index
WITH {scopes}
SELECT a.ord, w.waiting + r.reserved
FROM scopes a
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM (
        SELECT FROM {scope_lanes} n
        CROSS JOIN LATERAL (
            SELECT FROM queue_readyjob r WHERE r.lane_id = n.id
            UNION ALL
            SELECT FROM queue_scheduledjob d WHERE d.lane_id = n.id
        ) one
        LIMIT (%(bounds)s::bigint[])[a.ord]
    ) jobs
) w
CROSS JOIN LATERAL (
    SELECT coalesce(sum(v.jobs), 0) AS reserved FROM tenants_reservation v
    WHERE a.tenant_id IN (0, v.tenant_id) AND a.queue IN ('', v.queue) AND a.band IN (-1, v.band)
) r
