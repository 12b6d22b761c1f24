-- dependency_share_use: this shard's share of a dependency's limit, and what is used and wanted of it.
-- params: name, resource (running, rate), bound (no further is counted), now
-- returns share and version (null: none yet), used (running: leases; rate: starts within its window), wanted (what is ready)
-- plan: by index
WITH {clock},
    lanes AS MATERIALIZED (
        SELECT l.id FROM queue_lane l WHERE l.dependency = %(name)s::text AND l.dependency <> ''
    )
SELECT CASE WHEN %(resource)s::text = 'rate' THEN d.rate_share ELSE d.running_share END,
    CASE WHEN %(resource)s::text = 'rate' THEN d.rate_version ELSE d.running_version END,
    CASE WHEN %(resource)s::text = 'rate' THEN (
        SELECT coalesce(sum(c.started), 0) FROM (
            SELECT t.bucket + interval '100 milliseconds' AS at, t.started FROM queue_dependencytally t
            WHERE t.dependency = d.name AND t.bucket > k.at - w.span - interval '100 milliseconds'
            UNION ALL
            SELECT x.at, x.started FROM queue_dependencydelta x WHERE x.dependency = d.name
        ) c
        WHERE c.at > k.at - w.span
    ) ELSE (
        SELECT count(*) FROM (
            SELECT FROM lanes n JOIN queue_lease s ON s.lane_id = n.id LIMIT %(bound)s::bigint
        ) running
    ) END::bigint,
    (SELECT count(*) FROM (
        SELECT FROM lanes n JOIN queue_readyjob r ON r.lane_id = n.id LIMIT %(bound)s::bigint
    ) ready)
FROM clock k
LEFT JOIN queue_dependencystate d ON d.name = %(name)s::text
CROSS JOIN LATERAL (
    SELECT coalesce(d.rate_burst, greatest(1, ceil(d.rate_per_s))) / d.rate_per_s * interval '1 second' AS span
) w
