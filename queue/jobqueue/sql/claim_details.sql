-- claim_details: what a worker needs of the jobs that it has just leased; run after the claim's commit.
-- params: job_ids
-- returns job_id, queue, tenant, kind, priority, payload or ref, request key, traceparent, earlier generations (of a job
--   that must be reconciled), of those that have a lease
-- plan: by index, once
SELECT j.id, j.queue_id, j.tenant_id, j.kind, j.priority,
    CASE WHEN c.job_id IS NULL THEN j.payload ELSE c.payload END,
    CASE WHEN c.job_id IS NULL THEN j.payload_ref ELSE c.payload_ref END,
    j.request_key, j.traceparent,
    CASE WHEN s.reconcile THEN
        ARRAY(SELECT a.generation FROM queue_attempt a WHERE a.job_id = j.id ORDER BY a.generation)
    END
FROM unnest(%(job_ids)s::bigint[]) AS w(job_id)
JOIN queue_lease s ON s.job_id = w.job_id
JOIN queue_job j ON j.id = w.job_id
LEFT JOIN dlq_correction c ON c.job_id = w.job_id AND c.version = s.payload_version
