-- waiting_count: how many jobs of a tenant wait, counted no further than a bound.
-- params: tenant_id, queue_id (null: any), priority (null: any), bound
-- plan: by index
WITH lanes AS MATERIALIZED (
        SELECT id FROM queue_lane
        WHERE tenant_id = %(tenant_id)s::bigint
            AND (%(queue_id)s::bigint IS NULL OR queue_id = %(queue_id)s::bigint)
            AND (%(priority)s::smallint IS NULL OR priority = %(priority)s::smallint)
    )
SELECT count(*) FROM (
    SELECT FROM lanes n
    CROSS JOIN LATERAL (
        SELECT FROM queue_readyjob r WHERE r.lane_id = n.id
        UNION ALL
        SELECT FROM queue_scheduledjob w WHERE w.lane_id = n.id
    ) one
    LIMIT %(bound)s::int
) waiting
