-- dependency_states: where dependencies stand on this shard.
-- params: name (null: all), now
-- returns see `dependencies.Standing`
WITH {clock}
SELECT d.name, d.version, d.breaker, d.probe_at, d.probe_job_id, d.ramp_from, least(d.limit_now, d.running_share), d.is_held_open,
    (
        SELECT count(*) FROM queue_lane l JOIN queue_lease s ON s.lane_id = l.id
        WHERE l.dependency = d.name AND l.dependency <> ''
    ), w.calls, w.failures, k.at
FROM clock k
CROSS JOIN queue_dependencystate d
CROSS JOIN LATERAL (
    SELECT coalesce(sum(t.succeeded + t.failed), 0)::bigint AS calls, coalesce(sum(t.failed), 0)::bigint AS failures
    FROM queue_dependencytally t
    WHERE t.dependency = d.name
        AND t.bucket >= greatest(d.counted_from, k.at - d.breaker_window_s * interval '1 second')
) w
WHERE %(name)s::text IS NULL OR d.name = %(name)s::text
ORDER BY d.name
