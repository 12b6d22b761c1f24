-- A rate over several shards counts by this shard's share of its burst, and that share of the rate refills it.
CREATE OR REPLACE VIEW tenants_limithere AS
SELECT m.id, m.tenant_id, m.queue, m.band, m.weight,
    CASE WHEN m.is_shared AND m.enqueue_rate_per_s IS NOT NULL
        THEN m.enqueue_rate_per_s * r.share / coalesce(m.enqueue_burst, ceil(m.enqueue_rate_per_s))
        ELSE m.enqueue_rate_per_s END AS enqueue_rate_per_s,
    CASE WHEN m.is_shared AND m.enqueue_rate_per_s IS NOT NULL THEN r.share ELSE m.enqueue_burst END AS enqueue_burst,
    m.max_payload_bytes,
    CASE WHEN m.is_shared AND m.max_running IS NOT NULL THEN least(m.max_running, coalesce((
        SELECT s.share FROM tenants_limitshare s
        WHERE s.tenant_id = m.tenant_id AND s.queue = m.queue AND s.band = coalesce(m.band, -1)
            AND s.resource = 'running'
    ), 0)) ELSE m.max_running END AS max_running,
    CASE WHEN m.is_shared AND m.max_depth IS NOT NULL THEN least(m.max_depth, coalesce((
        SELECT s.share FROM tenants_limitshare s
        WHERE s.tenant_id = m.tenant_id AND s.queue = m.queue AND s.band = coalesce(m.band, -1)
            AND s.resource = 'depth'
    ), 0)) ELSE m.max_depth END AS max_depth
FROM tenants_tenantlimit m
CROSS JOIN LATERAL (
    SELECT least(coalesce(m.enqueue_burst, ceil(m.enqueue_rate_per_s))::int, coalesce((
        SELECT s.share FROM tenants_limitshare s
        WHERE s.tenant_id = m.tenant_id AND s.queue = m.queue AND s.band = coalesce(m.band, -1)
            AND s.resource = 'rate'
    ), 0)) AS share
) r;
