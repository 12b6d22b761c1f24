-- tenant_depths: what waits and runs of a tenant, by queue and band, counted no further than a bound.
-- params: tenant_id, groups (pairs of queue and band at most), bound, now
-- returns queue_id, priority, ready, scheduled, running, seconds since the oldest ready one became ready (null: none)
-- plan: by index
WITH {clock},
    lanes AS MATERIALIZED (
        SELECT l.id, l.queue_id, l.priority, l.low FROM queue_lane l WHERE l.tenant_id = %(tenant_id)s::bigint
    ),
    groups AS MATERIALIZED (
        SELECT DISTINCT queue_id, priority FROM lanes ORDER BY 1, 2 LIMIT %(groups)s::int
    )
SELECT g.queue_id, g.priority, v.ready, w.scheduled, s.running, o.age_s
FROM groups g
CROSS JOIN LATERAL (
    SELECT count(*) AS ready FROM (
        SELECT FROM lanes n JOIN queue_readyjob r ON r.lane_id = n.id
        WHERE n.queue_id = g.queue_id AND n.priority = g.priority LIMIT %(bound)s::int
    ) x
) v
CROSS JOIN LATERAL (
    SELECT count(*) AS scheduled FROM (
        SELECT FROM lanes n JOIN queue_scheduledjob d ON d.lane_id = n.id
        WHERE n.queue_id = g.queue_id AND n.priority = g.priority LIMIT %(bound)s::int
    ) x
) w
CROSS JOIN LATERAL (
    SELECT count(*) AS running FROM (
        SELECT FROM lanes n JOIN queue_lease e ON e.lane_id = n.id
        WHERE n.queue_id = g.queue_id AND n.priority = g.priority LIMIT %(bound)s::int
    ) x
) s
CROSS JOIN LATERAL (
    SELECT CASE WHEN min(h.position) IS NOT NULL THEN
        greatest(0, extract(epoch FROM (SELECT at FROM clock) - min(h.position)))::float8
    END AS age_s
    FROM lanes n CROSS JOIN LATERAL (
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND NOT r.fresh
         ORDER BY r.position, r.job_id LIMIT 1)
        UNION ALL
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND r.fresh AND r.position >= n.low
         ORDER BY r.position, r.job_id LIMIT 1)
    ) h
    WHERE n.queue_id = g.queue_id AND n.priority = g.priority
) o
ORDER BY g.queue_id, g.priority
