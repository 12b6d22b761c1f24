-- claim_details: what a worker needs of the jobs that it has just leased; run after the claim's commit.
-- params: job_ids, payload_versions (one a job), reconciling (jobs whose earlier generations it must know)
-- returns job_id, queue, tenant, kind, priority, payload or ref, request key, traceparent, earlier generations
-- plan: by index
SELECT j.id, j.queue_id, j.tenant_id, j.kind, j.priority,
    CASE WHEN c.job_id IS NULL THEN j.payload ELSE c.payload END,
    CASE WHEN c.job_id IS NULL THEN j.payload_ref ELSE c.payload_ref END,
    j.request_key, j.traceparent,
    CASE WHEN j.id = ANY(%(reconciling)b::bigint[]) THEN
        ARRAY(SELECT a.generation FROM queue_attempt a WHERE a.job_id = j.id ORDER BY a.generation)
    END
FROM unnest(%(job_ids)b::bigint[], %(payload_versions)b::bigint[]) AS w(job_id, payload_version)
JOIN queue_job j ON j.id = w.job_id
LEFT JOIN dlq_correction c ON c.job_id = w.job_id AND c.version = w.payload_version
