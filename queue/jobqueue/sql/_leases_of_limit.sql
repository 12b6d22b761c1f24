-- The leases that count against limit m, no further than it goes.
SELECT FROM queue_lane k JOIN queue_lease s ON s.lane_id = k.id
WHERE k.tenant_id = m.tenant_id AND (m.queue = '' OR k.queue_id = %(queue_id)s::bigint)
    AND (m.band IS NULL OR k.priority = m.band)
LIMIT m.max_running
