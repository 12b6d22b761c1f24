-- job_payload: the payload that the job's next or last attempt uses.
-- params: job_id; tenant_id, queue_ids
SELECT CASE WHEN c.job_id IS NULL THEN l.payload ELSE c.payload END,
    CASE WHEN c.job_id IS NULL THEN l.payload_ref ELSE c.payload_ref END
FROM queue_job l
LEFT JOIN LATERAL (
    SELECT x.job_id, x.payload, x.payload_ref FROM dlq_correction x
    WHERE x.job_id = l.id ORDER BY x.version DESC LIMIT 1
) c ON true
WHERE l.id = %(job_id)s::bigint AND {in_scope}
