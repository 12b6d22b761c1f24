-- patch_payloads: what dead letters would run with, and whether they were corrected since their last redrive.
-- params: job_ids (held by this transaction, or looked at)
-- returns job_id, tenant_id, kind, must_be_corrected, redrive_generation, payload (null: a reference)
SELECT d.job_id, l.tenant_id, l.kind, d.reason IN ('invalid', 'poison') AND NOT EXISTS (
        SELECT FROM dlq_correction c WHERE c.job_id = d.job_id AND c.redrive_generation = d.redrive_generation
    ), d.redrive_generation, CASE WHEN c.job_id IS NULL THEN j.payload ELSE c.payload END
FROM unnest(%(job_ids)s::bigint[]) AS a(job_id)
JOIN dlq_deadletter d ON d.job_id = a.job_id
JOIN queue_lane l ON l.id = d.lane_id
JOIN queue_job j ON j.id = d.job_id
LEFT JOIN LATERAL (
    SELECT x.job_id, x.payload FROM dlq_correction x WHERE x.job_id = d.job_id ORDER BY x.version DESC LIMIT 1
) c ON true
ORDER BY d.job_id
