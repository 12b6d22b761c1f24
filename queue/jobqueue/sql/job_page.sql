-- job_page: ids of a page of jobs and when they were accepted, newest first, driven by the place that the wanted state names.
-- params: state (null: any), before (ids below; null: from the newest), queue_id, kind, priority, request_key,
--   created_after, created_before, limit; tenant_id, queue_ids
WITH wanted AS (
        SELECT id AS job_id FROM queue_job WHERE %(state)s::text IS NULL
        UNION ALL
        SELECT job_id FROM queue_scheduledjob WHERE %(state)s::text = 'scheduled'
        UNION ALL
        SELECT job_id FROM queue_readyjob WHERE %(state)s::text = 'ready'
        UNION ALL
        SELECT job_id FROM queue_lease WHERE %(state)s::text = 'running'
        UNION ALL
        SELECT job_id FROM dlq_deadletter WHERE %(state)s::text = 'dead'
        UNION ALL
        SELECT job_id FROM queue_result WHERE outcome = %(state)s::text
    )
SELECT l.id, l.created_at
FROM wanted w JOIN queue_job l ON l.id = w.job_id
WHERE (%(before)s::bigint IS NULL OR w.job_id < %(before)s::bigint)
    AND (%(queue_id)s::bigint IS NULL OR l.queue_id = %(queue_id)s::bigint)
    AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
    AND (%(priority)s::smallint IS NULL OR l.priority = %(priority)s::smallint)
    AND (%(request_key)s::text IS NULL OR l.request_key = %(request_key)s::text)
    AND (%(created_after)s::timestamptz IS NULL OR l.created_at > %(created_after)s::timestamptz)
    AND (%(created_before)s::timestamptz IS NULL OR l.created_at < %(created_before)s::timestamptz)
    AND {in_scope}
ORDER BY w.job_id DESC
LIMIT %(limit)s::int
