-- tenant_course: what a tenant's jobs did lately, by steps of time.
-- params: tenant_id, since_s, step_s, now
-- returns the step's beginning, started, succeeded, failed, dead, service_ms
-- plan: by index
WITH {clock},
    lanes AS MATERIALIZED (SELECT l.id FROM queue_lane l WHERE l.tenant_id = %(tenant_id)s::bigint)
SELECT to_timestamp(floor(extract(epoch FROM m.minute) / %(step_s)s::int) * %(step_s)s::int) AS step,
    sum(m.started)::bigint, sum(m.succeeded)::bigint, sum(m.failed)::bigint, sum(m.dead)::bigint,
    sum(m.service_ms)::bigint
FROM lanes n
JOIN queue_laneminute m ON m.lane_id = n.id
    AND m.minute >= (SELECT at FROM clock) - make_interval(secs => %(since_s)s::float8)
GROUP BY 1 ORDER BY 1
