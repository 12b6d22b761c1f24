-- queue_stats: how much of a queue waits and runs, band by band, counted no further than a bound.
-- params: queue_id, tenant_id (null: all), bands (their indexes), bound, now
-- returns a row a band: priority, ready, seconds since the oldest ready one became ready (null: none); and in each row
--   of the whole queue: scheduled, leased, dead (among the newest `bound` dead letters), whether there are more of
--   those, mean service time in ms (null: unmeasured), and the instant
-- plan: by index
WITH {clock},
    lanes AS MATERIALIZED (
        SELECT l.id, l.priority, l.low, l.mean_ms FROM queue_lane l
        WHERE l.queue_id = %(queue_id)s::bigint
            AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
    ),
    newest AS MATERIALIZED (
        SELECT d.lane_id FROM dlq_deadletter d ORDER BY d.failed_at DESC, d.job_id DESC LIMIT %(bound)s::int
    ),
    whole AS MATERIALIZED (
        SELECT
            (SELECT count(*) FROM (SELECT FROM lanes n JOIN queue_scheduledjob w ON w.lane_id = n.id
                LIMIT %(bound)s::int) x) AS scheduled,
            (SELECT count(*) FROM (SELECT FROM lanes n JOIN queue_lease s ON s.lane_id = n.id
                LIMIT %(bound)s::int) x) AS leased,
            (SELECT count(*) FROM newest w WHERE w.lane_id IN (SELECT id FROM lanes)) AS dead,
            (SELECT count(*) FROM newest) >= %(bound)s::int AS has_more_dead,
            (SELECT avg(mean_ms) FROM lanes) AS mean_ms
    )
SELECT b.band, v.visible, o.age_s, w.scheduled, w.leased, w.dead, w.has_more_dead, w.mean_ms, k.at
FROM unnest(%(bands)s::int[]) AS b(band)
CROSS JOIN whole w
CROSS JOIN clock k
CROSS JOIN LATERAL (
    SELECT count(*) AS visible FROM (
        SELECT FROM lanes n JOIN queue_readyjob r ON r.lane_id = n.id WHERE n.priority = b.band LIMIT %(bound)s::int
    ) x
) v
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM k.at - min(h.position))::float8 AS age_s
    FROM lanes n CROSS JOIN LATERAL (
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND NOT r.fresh
         ORDER BY r.position, r.job_id LIMIT 1)
        UNION ALL
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND r.fresh AND r.position >= n.low
         ORDER BY r.position, r.job_id LIMIT 1)
    ) h
    WHERE n.priority = b.band
) o
