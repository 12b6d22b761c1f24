-- fsck_keys: request keys of one id range that name a job which is not there and was never purged.
-- params: low, high (null: open end)
SELECT k.job_id, 'key_dangling', 'a request key names a job that does not exist'
FROM queue_requestkey k
WHERE k.job_id >= coalesce(%(low)s::bigint, 0) AND k.job_id < coalesce(%(high)s::bigint, 9223372036854775807)
    AND NOT k.is_moved AND k.job_purged_at IS NULL AND NOT EXISTS (SELECT FROM queue_job j WHERE j.id = k.job_id)
