-- correction_repeat: the correction that an earlier call with this key made.
-- params: job_id, key
SELECT version, call_hash, old_sha256, new_sha256 FROM dlq_correction
WHERE job_id = %(job_id)s::bigint AND idempotency_key = %(key)s::text
