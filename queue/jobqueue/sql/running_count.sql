-- running_count: how many jobs of a tenant run, counted no further than a bound.
-- params: tenant_id, queue_id (null: any), priority (null: any), bound
WITH lanes AS MATERIALIZED (
        SELECT id FROM queue_lane
        WHERE tenant_id = %(tenant_id)s::bigint
            AND (%(queue_id)s::bigint IS NULL OR queue_id = %(queue_id)s::bigint)
            AND (%(priority)s::smallint IS NULL OR priority = %(priority)s::smallint)
    )
SELECT count(*) FROM (
    SELECT 1 FROM queue_lease s JOIN lanes n ON n.id = s.lane_id LIMIT %(bound)s::int
) running
