-- fork_note: say from which dead letter a new job was made; run in the transaction that accepted it.
-- params: job_id, origin_job_id, note, actor, audit_id
INSERT INTO dlq_fork (job_id, origin_job_id, note, actor, audit_id, at)
VALUES (
    %(job_id)s::bigint, %(origin_job_id)s::bigint, %(note)s::text, %(actor)s::text, %(audit_id)s::bigint,
    clock_timestamp()
)
