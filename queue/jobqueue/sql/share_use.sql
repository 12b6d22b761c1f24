-- share_use: this shard's share of a limit, and what is used and wanted of it.
-- params: tenant_id, queue, band (-1: all), resource, bound (no further is counted)
-- returns share and version (null: none yet), used (running: leases; depth: what waits or is reserved), wanted (running:
--   what is ready; depth: 1 where the share is used up)
-- plan: by index
WITH lanes AS MATERIALIZED (
        SELECT l.id FROM queue_lane l
        WHERE l.tenant_id = %(tenant_id)s::bigint AND (%(band)s::int < 0 OR l.priority = %(band)s::int)
            AND (%(queue)s::text = '' OR l.queue_id = (
                SELECT p.queue_id FROM queue_policyrow p WHERE p.name = %(queue)s::text
            ))
    ),
    counted AS MATERIALIZED (
        SELECT
            (SELECT count(*) FROM (
                SELECT FROM lanes n JOIN queue_lease s ON s.lane_id = n.id LIMIT %(bound)s::bigint) running) AS running,
            (SELECT count(*) FROM (
                SELECT FROM lanes n JOIN queue_readyjob r ON r.lane_id = n.id LIMIT %(bound)s::bigint) ready) AS ready,
            CASE WHEN %(resource)s::text = 'depth' THEN (SELECT count(*) FROM (
                SELECT FROM lanes n JOIN queue_scheduledjob d ON d.lane_id = n.id LIMIT %(bound)s::bigint) due)
                + (SELECT coalesce(sum(v.jobs), 0) FROM tenants_reservation v
                   WHERE v.tenant_id = %(tenant_id)s::bigint AND %(queue)s::text IN ('', v.queue)
                    AND (%(band)s::int < 0 OR v.band = %(band)s::int)) END AS later
    )
SELECT s.share, s.version,
    CASE WHEN %(resource)s::text = 'depth' THEN c.ready + c.later ELSE c.running END::bigint,
    CASE WHEN %(resource)s::text = 'depth' THEN (c.ready + c.later >= coalesce(s.share, 0))::int
        ELSE c.ready END::bigint
FROM counted c
LEFT JOIN tenants_limitshare s ON s.tenant_id = %(tenant_id)s::bigint AND s.queue = %(queue)s::text
    AND s.band = %(band)s::int AND s.resource = %(resource)s::text
