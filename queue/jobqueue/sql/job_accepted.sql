-- job_accepted: when a job was accepted.
-- params: job_id
SELECT created_at FROM queue_job WHERE id = %(job_id)s::bigint
