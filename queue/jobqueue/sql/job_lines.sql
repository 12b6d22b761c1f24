-- job_lines: jobs as a list shows them, each from the place where it stands; payloads are not touched.
-- params: job_ids; tenant_id, queue_ids
-- returns one row a visible job, newest first (state null: between two places)
-- plan: by index
SELECT l.id, l.tenant_id, l.queue_id, l.kind, l.priority,
    CASE
        WHEN s.job_id IS NOT NULL THEN 'running'
        WHEN r.job_id IS NOT NULL THEN 'ready'
        WHEN w.job_id IS NOT NULL THEN 'scheduled'
        WHEN f.job_id IS NOT NULL THEN f.outcome
        WHEN d.job_id IS NOT NULL THEN 'dead'
    END AS state,
    l.request_key, l.created_at,
    coalesce(s.attempt, r.attempt, w.attempt, f.attempt, d.attempt) AS attempts_used,
    coalesce(s.max_attempts, r.max_attempts, w.max_attempts, d.max_attempts, l.max_attempts) AS max_attempts,
    coalesce(s.generation, r.generation, w.generation, f.generation, d.generation) AS generation,
    coalesce(s.redrive_generation, r.redrive_generation, w.redrive_generation, f.redrive_generation,
        d.redrive_generation) AS redrive_generation,
    w.due_at, s.claimed_at, s.expires_at, s.worker, coalesce(f.finished_at, d.failed_at) AS finished_at,
    e.error_class, left(e.message, 300) AS error, d.reason AS dead_reason
-- Each place is looked into job by job, whatever the planner believes of its size.
FROM queue_job l
LEFT JOIN LATERAL (
    SELECT p.job_id, p.attempt, p.max_attempts, p.generation, p.redrive_generation, p.claimed_at, p.expires_at,
        p.worker
    FROM queue_lease p WHERE p.job_id = l.id OFFSET 0
) s ON true
LEFT JOIN LATERAL (
    SELECT p.job_id, p.attempt, p.max_attempts, p.generation, p.redrive_generation
    FROM queue_readyjob p WHERE p.job_id = l.id OFFSET 0
) r ON true
LEFT JOIN LATERAL (
    SELECT p.job_id, p.attempt, p.max_attempts, p.generation, p.redrive_generation, p.due_at
    FROM queue_scheduledjob p WHERE p.job_id = l.id OFFSET 0
) w ON true
LEFT JOIN LATERAL (
    SELECT p.job_id, p.outcome, p.attempt, p.generation, p.redrive_generation, p.finished_at
    FROM queue_result p WHERE p.job_id = l.id OFFSET 0
) f ON true
LEFT JOIN LATERAL (
    SELECT p.job_id, p.attempt, p.max_attempts, p.generation, p.redrive_generation, p.failed_at, p.reason
    FROM dlq_deadletter p WHERE p.job_id = l.id OFFSET 0
) d ON true
LEFT JOIN LATERAL (
    SELECT a.error_class, a.message FROM queue_attempt a
    WHERE a.job_id = l.id AND a.error_class IS NOT NULL
    ORDER BY a.generation DESC LIMIT 1
) e ON true
WHERE l.id = ANY(%(job_ids)s::bigint[]) AND {in_scope}
ORDER BY l.id DESC
