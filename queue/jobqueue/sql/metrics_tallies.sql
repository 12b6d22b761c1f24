-- metrics_tallies: what has happened since the beginning, in the bands with most starts and in all together.
-- params: bands_max
-- returns queue_id and priority (null: all bands), started, firsts, promoted, succeeded, failed, retried, lease_lost, dead,
--   service_ms
(SELECT y.queue_id, y.priority, y.started, y.firsts, y.promoted, y.succeeded, y.failed, y.retried, y.lease_lost, y.dead,
    y.service_ms
 FROM queue_queuetally y ORDER BY y.started DESC, y.queue_id, y.priority LIMIT %(bands_max)s::int)
UNION ALL
SELECT NULL, NULL, coalesce(sum(y.started), 0)::bigint, coalesce(sum(y.firsts), 0)::bigint,
    coalesce(sum(y.promoted), 0)::bigint, coalesce(sum(y.succeeded), 0)::bigint, coalesce(sum(y.failed), 0)::bigint,
    coalesce(sum(y.retried), 0)::bigint, coalesce(sum(y.lease_lost), 0)::bigint, coalesce(sum(y.dead), 0)::bigint,
    coalesce(sum(y.service_ms), 0)::bigint
FROM queue_queuetally y
