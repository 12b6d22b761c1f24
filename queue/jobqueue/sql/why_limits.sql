-- why_limits: the limits on running jobs that a tenant's work in a band meets, and how much of each is used.
-- params: tenant_id, queue_id, priority
-- returns queue (empty: over all queues), band (null: over all bands), max_running, running
-- plan: by index
SELECT m.queue, m.band, m.max_running, (
    SELECT count(*) FROM queue_lane k JOIN queue_lease s ON s.lane_id = k.id
    WHERE k.tenant_id = m.tenant_id AND (m.queue = '' OR k.queue_id = p.queue_id)
        AND (m.band IS NULL OR k.priority = m.band)
)
FROM tenants_limithere m
JOIN queue_policyrow p ON p.queue_id = %(queue_id)s::bigint
WHERE m.tenant_id = %(tenant_id)s::bigint AND m.max_running IS NOT NULL AND m.queue IN ('', p.name)
    AND (m.band IS NULL OR m.band = %(priority)s::smallint)
ORDER BY m.queue, m.band NULLS FIRST
