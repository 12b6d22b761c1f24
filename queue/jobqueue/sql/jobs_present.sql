-- jobs_present: which of these jobs are still known here.
-- params: job_ids
-- plan: by index
SELECT j.id FROM unnest(%(job_ids)s::bigint[]) AS a(id) JOIN queue_job j ON j.id = a.id
