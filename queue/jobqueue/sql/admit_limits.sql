-- admit_limits: the limits on intake of these scopes, and what is left of each.
-- params: tenant_ids, queues, bands (one scope a position: 0 all tenants, '' all queues, -1 all bands); now
-- returns tenant_id, queue, band, max_depth, max_payload_bytes, rate (a second), burst, allowance (null: to be made),
--   tokens now, room (null: to be counted), seconds since it was counted, at
-- run after `tenants/allowance_lock`, as a statement of its own: so it reads what the holder before has left
-- plan: by index, once
WITH {clock},
    {scopes},
    limits AS MATERIALIZED (
        SELECT s.tenant_id, s.queue, s.band, m.max_depth::bigint AS max_depth, m.max_payload_bytes,
            m.enqueue_rate_per_s AS rate,
            CASE WHEN m.enqueue_rate_per_s IS NOT NULL THEN
                coalesce(m.enqueue_burst, ceil(m.enqueue_rate_per_s))::float8
            END AS burst
        FROM scopes s
        JOIN tenants_limithere m ON m.tenant_id = s.tenant_id AND m.queue = s.queue AND coalesce(m.band, -1) = s.band
        WHERE num_nonnulls(m.max_depth, m.enqueue_rate_per_s, m.max_payload_bytes) > 0
        UNION ALL
        SELECT s.tenant_id, s.queue, s.band, p.depth_limit, NULL, NULL, NULL
        FROM scopes s JOIN queue_policyrow p ON p.queue_id = s.queue_id
        WHERE s.tenant_id = 0 AND p.depth_limit IS NOT NULL
    )
SELECT l.tenant_id, l.queue, l.band, l.max_depth, l.max_payload_bytes, l.rate, l.burst, a.id,
    least(l.burst, coalesce(a.tokens + l.rate * greatest(0, extract(epoch FROM k.at - a.filled_at)::float8), l.burst)),
    CASE WHEN a.counted_for = l.max_depth THEN a.room END,
    extract(epoch FROM k.at - a.counted_at)::float8,
    k.at
FROM limits l
CROSS JOIN clock k
LEFT JOIN tenants_allowance a ON a.tenant_id = l.tenant_id AND a.queue = l.queue AND a.band = l.band
