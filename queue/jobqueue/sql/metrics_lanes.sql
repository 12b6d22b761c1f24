-- metrics_lanes: since when the oldest runnable job waits, by band of a queue and by tenant, in the active lanes whose
--   bounds are oldest.
-- params: lanes_max (lanes that are looked into), now
-- returns queue_id and priority, or tenant_id, and seconds; a lane that holds nothing counts nowhere
-- plan: by index
WITH {clock},
    lanes AS MATERIALIZED (
        SELECT l.id, l.queue_id, l.priority, l.tenant_id, l.low FROM queue_lane l
        WHERE l.is_active ORDER BY l.low LIMIT %(lanes_max)s::int
    )
SELECT n.queue_id, n.priority, n.tenant_id, greatest(0, extract(epoch FROM k.at - min(h.position)))::float8
FROM clock k CROSS JOIN lanes n CROSS JOIN LATERAL (
    (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND NOT r.fresh
     ORDER BY r.position, r.job_id LIMIT 1)
    UNION ALL
    (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND r.fresh AND r.position >= n.low
     ORDER BY r.position, r.job_id LIMIT 1)
) h
GROUP BY GROUPING SETS ((k.at, n.queue_id, n.priority), (k.at, n.tenant_id))
