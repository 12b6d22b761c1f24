-- lane_stale: hold lanes that sleep, that were not used for a day, and in which no job stands.
-- params: limit, now
-- returns their ids.  locks: lane rows in id order, SKIP LOCKED; enqueues into those lanes wait, and find them gone
WITH {clock}
SELECT l.id FROM queue_lane l
WHERE NOT l.is_active AND l.used_at < (SELECT at FROM clock) - interval '1 day'
    AND coalesce(l.gated_until < (SELECT at FROM clock), true)
    AND {unused}
ORDER BY l.id
LIMIT %(limit)s::int
FOR UPDATE OF l SKIP LOCKED
