-- arrivals: jobs that a tenant has put in lately, by minute, among its newest.
-- params: tenant_id, queue_id (null: any), priority (null: any), bytes (a payload's size; null: do not compare),
--   since_s, bound (rows that are looked at), now
-- returns the minute, jobs, those of them with a larger payload
-- plan: by index
WITH {clock},
    newest AS MATERIALIZED (
        SELECT j.queue_id, j.priority, j.created_at, octet_length(j.payload) AS bytes
        FROM queue_job j
        WHERE j.tenant_id = %(tenant_id)s::bigint
        ORDER BY j.id DESC
        LIMIT %(bound)s::int
    )
SELECT date_trunc('minute', n.created_at), count(*),
    count(*) FILTER (WHERE n.bytes > coalesce(%(bytes)s::bigint, 9223372036854775807))
FROM newest n
WHERE n.created_at >= (SELECT at FROM clock) - make_interval(secs => %(since_s)s::float8)
    AND (%(queue_id)s::bigint IS NULL OR n.queue_id = %(queue_id)s::bigint)
    AND (%(priority)s::smallint IS NULL OR n.priority = %(priority)s::smallint)
GROUP BY 1 ORDER BY 1
