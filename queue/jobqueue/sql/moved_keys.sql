-- moved_keys: request keys whose jobs are on other shards and, as far as is known here, not gone.
-- params: above (row id), limit
-- returns row id, job_id
-- plan: by index
SELECT k.id, k.job_id FROM queue_requestkey k
WHERE k.is_moved AND k.job_purged_at IS NULL AND k.id > %(above)s::bigint
ORDER BY k.id LIMIT %(limit)s::int
