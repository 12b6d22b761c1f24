-- metrics_ready: how many jobs are runnable in these bands, counted no further than a bound.
-- params: queue_ids, priorities (one band each), bound
-- returns queue_id, priority, jobs
-- plan: by index
SELECT b.queue_id, b.priority, (
    SELECT count(*) FROM (
        SELECT FROM queue_lane l JOIN queue_readyjob r ON r.lane_id = l.id
        WHERE l.queue_id = b.queue_id AND l.priority = b.priority AND l.is_active LIMIT %(bound)s::int
    ) x
)
FROM unnest(%(queue_ids)s::bigint[], %(priorities)s::smallint[]) AS b(queue_id, priority)
