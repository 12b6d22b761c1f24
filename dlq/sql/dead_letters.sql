-- dead_letters: a page of dead letters, newest first, or one of them.
-- params: job_id (null: a page), before_at and before_id (null: from the newest), queue_id, reason, kind, fingerprint,
--   limit; tenant_id, queue_ids
SELECT d.job_id, l.tenant_id, l.queue_id, l.kind, l.priority, d.reason, d.failed_at, d.error_class, d.message,
    d.fingerprint, d.attempt, d.crashes, d.generation, d.redrive_generation,
    d.reason IN ('invalid', 'poison') AND NOT EXISTS (
        SELECT FROM dlq_correction x WHERE x.job_id = d.job_id AND x.redrive_generation = d.redrive_generation
    ) AS correction_required,
    CASE WHEN c.job_id IS NULL THEN octet_length(l.payload) ELSE octet_length(c.payload) END,
    encode(sha256(convert_to(CASE WHEN c.job_id IS NULL THEN l.payload ELSE c.payload END, 'UTF8')), 'hex'),
    CASE WHEN c.job_id IS NULL THEN l.payload_ref ELSE c.payload_ref END
FROM dlq_deadletter d
JOIN queue_job l ON l.id = d.job_id
LEFT JOIN LATERAL (
    SELECT x.job_id, x.payload, x.payload_ref FROM dlq_correction x
    WHERE x.job_id = d.job_id ORDER BY x.version DESC LIMIT 1
) c ON true
WHERE (%(job_id)s::bigint IS NULL OR d.job_id = %(job_id)s::bigint)
    AND (%(before_at)s::timestamptz IS NULL
         OR (d.failed_at, d.job_id) < (%(before_at)s::timestamptz, %(before_id)s::bigint))
    AND (%(queue_id)s::bigint IS NULL OR l.queue_id = %(queue_id)s::bigint)
    AND (%(reason)s::text IS NULL OR d.reason = %(reason)s::text)
    AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
    AND (%(fingerprint)s::text IS NULL OR d.fingerprint = %(fingerprint)s::text)
    AND {in_scope}
ORDER BY d.failed_at DESC, d.job_id DESC
LIMIT %(limit)s::int
