-- job_views: jobs as a client sees them, each from the place where it stands; all places in one statement.
-- params: job_ids; tenant_id, queue_ids
-- returns one row a visible job, newest first (state null: between two places, read again)
-- plan: by index
SELECT l.id, l.tenant_id, l.queue_id, l.kind, l.priority,
    CASE
        WHEN s.job_id IS NOT NULL THEN 'running'
        WHEN r.job_id IS NOT NULL THEN 'ready'
        WHEN w.job_id IS NOT NULL THEN 'scheduled'
        WHEN f.job_id IS NOT NULL THEN f.outcome
        WHEN d.job_id IS NOT NULL THEN 'dead'
    END AS state,
    l.request_key,
    encode(sha256(convert_to(CASE WHEN c.job_id IS NULL THEN l.payload ELSE c.payload END, 'UTF8')), 'hex')
        AS payload_sha256,
    octet_length(CASE WHEN c.job_id IS NULL THEN l.payload ELSE c.payload END) AS payload_bytes,
    CASE WHEN c.job_id IS NULL THEN l.payload_ref ELSE c.payload_ref END AS payload_ref,
    l.dependency,
    coalesce(s.attempt, r.attempt, w.attempt, f.attempt, d.attempt) AS attempts_used,
    coalesce(s.max_attempts, r.max_attempts, w.max_attempts, d.max_attempts, l.max_attempts) AS max_attempts,
    coalesce(s.generation, r.generation, w.generation, f.generation, d.generation) AS generation,
    coalesce(s.crashes, r.crashes, w.crashes, f.crashes, d.crashes) AS crashes,
    coalesce(s.redrive_generation, r.redrive_generation, w.redrive_generation, f.redrive_generation,
        d.redrive_generation) AS redrive_generation,
    l.not_before,
    CASE
        WHEN s.job_id IS NOT NULL THEN s.deadline
        WHEN r.job_id IS NOT NULL THEN r.deadline
        WHEN w.job_id IS NOT NULL THEN w.deadline
        WHEN d.job_id IS NOT NULL THEN d.deadline
        ELSE l.deadline
    END AS deadline,
    l.created_at, w.due_at, s.claimed_at, s.expires_at, coalesce(f.finished_at, d.failed_at) AS finished_at,
    coalesce(s.cancel_requested, false) AS cancel_requested,
    e.error_class, e.message, e.ended_at, d.reason AS dead_reason,
    coalesce(extract(epoch FROM clock_timestamp() - r.position)::float8, 0) AS waited_s
FROM queue_job l
LEFT JOIN queue_lease s ON s.job_id = l.id
LEFT JOIN queue_readyjob r ON r.job_id = l.id
LEFT JOIN queue_scheduledjob w ON w.job_id = l.id
LEFT JOIN queue_result f ON f.job_id = l.id
LEFT JOIN dlq_deadletter d ON d.job_id = l.id
LEFT JOIN dlq_correction c ON c.job_id = l.id
    AND c.version = coalesce(s.payload_version, r.payload_version, w.payload_version, (
        SELECT max(version) FROM dlq_correction x WHERE x.job_id = l.id
    ))
LEFT JOIN LATERAL (
    SELECT a.error_class, a.message, a.ended_at FROM queue_attempt a
    WHERE a.job_id = l.id AND a.error_class IS NOT NULL
    ORDER BY a.generation DESC LIMIT 1
) e ON true
WHERE l.id = ANY(%(job_ids)s::bigint[]) AND {in_scope}
ORDER BY l.id DESC
