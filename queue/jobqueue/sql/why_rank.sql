-- why_rank: how many ready jobs of a tenant stand before one of its own in the same band, no further than a bound.
-- params: queue_id, priority, tenant_id, fresh, position, job_id (where it stands), bound
-- plan: by index
WITH lanes AS MATERIALIZED (
        SELECT id, low FROM queue_lane
        WHERE queue_id = %(queue_id)s::bigint AND priority = %(priority)s::smallint
            AND tenant_id = %(tenant_id)s::bigint
    )
SELECT count(*) FROM (
    SELECT FROM lanes n JOIN queue_readyjob r ON r.lane_id = n.id
    WHERE NOT r.fresh
        AND (%(fresh)s::bool OR (r.position, r.job_id) < (%(position)s::timestamptz, %(job_id)s::bigint))
    UNION ALL
    SELECT FROM lanes n JOIN queue_readyjob r ON r.lane_id = n.id
    WHERE %(fresh)s::bool AND r.fresh AND r.position >= n.low
        AND (r.position, r.job_id) < (%(position)s::timestamptz, %(job_id)s::bigint)
    LIMIT %(bound)s::int
) before
