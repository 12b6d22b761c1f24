-- fork_of: the dead letters that jobs were forked from.
-- params: job_ids
SELECT job_id, origin_job_id FROM dlq_fork WHERE job_id = ANY(%(job_ids)s::bigint[])
