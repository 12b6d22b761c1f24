-- correction_repeat: the correction that an earlier call with this key made within its window.
-- params: job_id, key, window_s, now
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at)
SELECT version, call_hash, old_sha256, new_sha256 FROM dlq_correction
WHERE job_id = %(job_id)s::bigint AND idempotency_key = %(key)s::text
    AND at > (SELECT at FROM clock) - %(window_s)s::int * interval '1 second'
