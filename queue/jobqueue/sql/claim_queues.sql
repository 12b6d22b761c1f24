-- claim_queues: which of these queues have something active for this caller, and how old their most urgent lane is.
-- params: queue_ids, max_priority, kinds, tenant_id
-- returns queue_id, the most urgent active priority, and the position of that lane's head (null: nothing there now)
SELECT DISTINCT ON (l.queue_id) l.queue_id, l.priority, h.position
FROM queue_lane l
CROSS JOIN LATERAL (
    (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh
     ORDER BY r.position, r.job_id LIMIT 1)
    UNION ALL
    (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
     ORDER BY r.position, r.job_id LIMIT 1)
    LIMIT 1
) h
WHERE l.is_active AND l.queue_id = ANY(%(queue_ids)s::bigint[])
    AND (%(max_priority)s::int IS NULL OR l.priority <= %(max_priority)s::int)
    AND (%(kinds)s::text[] IS NULL OR l.kind = ANY(%(kinds)s::text[]))
    AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
ORDER BY l.queue_id, l.priority, h.position
