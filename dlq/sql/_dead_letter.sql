d.job_id, l.tenant_id, l.queue_id, l.kind, l.priority, d.reason, d.failed_at, d.error_class, d.message,
    d.fingerprint, d.attempt, d.crashes, d.generation, d.redrive_generation,
    d.reason IN ('invalid', 'poison') AND NOT EXISTS (
        SELECT FROM dlq_correction x WHERE x.job_id = d.job_id AND x.redrive_generation = d.redrive_generation
    ) AS correction_required,
    CASE WHEN c.job_id IS NULL THEN octet_length(l.payload) ELSE octet_length(c.payload) END,
    encode(sha256(convert_to(CASE WHEN c.job_id IS NULL THEN l.payload ELSE c.payload END, 'UTF8')), 'hex'),
    CASE WHEN c.job_id IS NULL THEN l.payload_ref ELSE c.payload_ref END
