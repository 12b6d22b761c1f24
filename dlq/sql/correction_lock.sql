-- correction_lock: hold a dead letter, and say whether it is one.
-- params: job_id; tenant_id, queue_ids
-- returns tenant_id, is_dead, redrive_generation (of the dead letter), kind.  no row: no such job for the caller
WITH held AS MATERIALIZED (
        SELECT d.job_id, d.redrive_generation FROM dlq_deadletter d WHERE d.job_id = %(job_id)s::bigint FOR UPDATE
    )
SELECT l.tenant_id, h.job_id IS NOT NULL, h.redrive_generation, l.kind
FROM queue_job l LEFT JOIN held h ON h.job_id = l.id
WHERE l.id = %(job_id)s::bigint AND {in_scope}
