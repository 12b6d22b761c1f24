-- restored_ids: let new jobs have ids that cannot have been issued before the restore.
-- params: skipped
-- returns the last id that is not issued any more
SELECT setval('queue_job_id_seq', (SELECT last_value FROM queue_job_id_seq) + %(skipped)s::bigint)
