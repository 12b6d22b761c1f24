-- head_summary: what waits in the active lanes of these queues, by band; no lock. Lanes behind a gate are not active.
-- params: queue_ids, max_priority (null: any), kinds (null: any), tenant_id (null: any), probes (lanes looked at), depth
--   (jobs counted a lane)
-- returns queue_id, band, count (at least), since when the first waits (epoch seconds)
-- plan: by index
WITH lanes AS MATERIALIZED (
        SELECT l.id, l.queue_id, l.priority, l.low
        FROM queue_lane l
        WHERE l.is_active AND l.queue_id = ANY(%(queue_ids)s::bigint[])
            AND (%(max_priority)s::int IS NULL OR l.priority <= %(max_priority)s::int)
            AND (%(kinds)s::text[] IS NULL OR l.kind = ANY(%(kinds)s::text[]))
            AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
        LIMIT %(probes)s::int
    )
SELECT l.queue_id, l.priority, sum(h.count)::bigint, min(extract(epoch FROM h.since))::float8
FROM lanes l
CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(q.position) AS since FROM (
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh
         ORDER BY r.position, r.job_id LIMIT %(depth)s::int)
        UNION ALL
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
         ORDER BY r.position, r.job_id LIMIT %(depth)s::int)
    ) q
) h
WHERE h.count > 0
GROUP BY l.queue_id, l.priority
