-- fork_origin: what a fork copies of a dead letter: its payload's present version, where it was to run, and how.
-- params: job_id; tenant_id, queue_ids
-- no row: no such job for the caller; is_dead false: it is none
SELECT l.tenant_id, l.queue_id, l.kind, l.priority, l.dependency, l.traceparent,
    CASE WHEN c.job_id IS NULL THEN l.payload ELSE c.payload END,
    CASE WHEN c.job_id IS NULL THEN l.payload_ref ELSE c.payload_ref END,
    d.job_id IS NOT NULL AS is_dead
FROM queue_job l
LEFT JOIN dlq_deadletter d ON d.job_id = l.id
LEFT JOIN LATERAL (
    SELECT x.job_id, x.payload, x.payload_ref FROM dlq_correction x
    WHERE x.job_id = l.id ORDER BY x.version DESC LIMIT 1
) c ON true
WHERE l.id = %(job_id)s::bigint AND {in_scope}
