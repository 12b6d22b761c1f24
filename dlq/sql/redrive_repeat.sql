-- redrive_repeat: the redrive that an earlier call with this key made.
-- params: job_id, redrive_key; tenant_id, queue_ids
SELECT r.redrive_generation, r.call_hash, r.audit_id, r.led_to
FROM dlq_redrive r JOIN queue_job l ON l.id = r.job_id
WHERE r.job_id = %(job_id)s::bigint AND r.redrive_key = %(redrive_key)s::text AND {in_scope}
