-- message_times: when messages were accepted.
-- params: job_ids
-- plan: by index
SELECT j.id, j.created_at FROM queue_job j WHERE j.id = ANY(%(job_ids)s::bigint[])
