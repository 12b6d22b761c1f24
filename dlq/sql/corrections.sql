-- corrections: the versions of these jobs' payloads, oldest first.
-- params: job_ids
SELECT job_id, version, note, author, at, encode(old_sha256, 'hex'), encode(new_sha256, 'hex')
FROM dlq_correction WHERE job_id = ANY(%(job_ids)s::bigint[])
ORDER BY job_id, version
