-- why_drain: starts of a band in each of the last full minutes, over all tenants or of one.
-- params: queue_id, priority, tenant_id (null: all), minutes, now
-- returns the starts of each minute that had some
-- plan: by index
WITH {clock},
    since AS MATERIALIZED (SELECT date_trunc('minute', at) AS minute FROM clock)
SELECT sum(m.started)::bigint
FROM since s
JOIN queue_laneminute m ON m.minute < s.minute AND m.minute >= s.minute - %(minutes)s::int * interval '1 minute'
JOIN queue_lane l ON l.id = m.lane_id
WHERE l.queue_id = %(queue_id)s::bigint AND l.priority = %(priority)s::smallint
    AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
GROUP BY m.minute
HAVING sum(m.started) > 0
