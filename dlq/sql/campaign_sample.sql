-- campaign_sample: some of what a filter chooses, with what a redrive would run.
-- params: the filter; limit, bytes_max (payloads that are longer are left out)
-- returns job_id, tenant_id, queue_id, kind, reason, redrive_generation, deadline, payload (null: a reference, or long),
--   must_be_corrected
SELECT d.job_id, l.tenant_id, l.queue_id, l.kind, d.reason, d.redrive_generation, d.deadline,
    CASE WHEN octet_length(p.payload) <= %(bytes_max)s::int THEN p.payload END,
    d.reason IN ('invalid', 'poison') AND NOT EXISTS (
        SELECT FROM dlq_correction c WHERE c.job_id = d.job_id AND c.redrive_generation = d.redrive_generation
    )
FROM (
    SELECT d.* FROM dlq_deadletter d JOIN queue_lane l ON l.id = d.lane_id WHERE {chosen} LIMIT %(limit)s::int
) d
JOIN queue_lane l ON l.id = d.lane_id
JOIN queue_job j ON j.id = d.job_id
CROSS JOIN LATERAL (
    SELECT coalesce((
        SELECT c.payload FROM dlq_correction c WHERE c.job_id = d.job_id ORDER BY c.version DESC LIMIT 1
    ), j.payload) AS payload
) p
