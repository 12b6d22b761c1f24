-- correction_free_key: forget the key of an earlier correction, whose window is over; the version itself stays.
-- params: job_id, key.  run after correction_repeat found nothing, under correction_lock
UPDATE dlq_correction SET idempotency_key = NULL
WHERE job_id = %(job_id)s::bigint AND idempotency_key = %(key)s::text
