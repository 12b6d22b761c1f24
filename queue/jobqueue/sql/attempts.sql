-- attempts: how a job's generations went, newest first; the one that runs now has not ended.
-- params: job_id, before (generations below; null: from the newest), limit; tenant_id, queue_ids
-- plan: by index
WITH visible AS MATERIALIZED (SELECT l.id FROM queue_job l WHERE l.id = %(job_id)s::bigint AND {in_scope})
SELECT generation, attempt, worker, claimed_at, ended_at, outcome, error_class, message, service_ms
FROM (
    SELECT a.generation, a.attempt, a.worker, a.claimed_at, a.ended_at, a.outcome, a.error_class, a.message,
        a.service_ms
    FROM queue_attempt a JOIN visible v ON v.id = a.job_id
    UNION ALL
    SELECT s.generation, s.attempt, s.worker, s.claimed_at, NULL, NULL, NULL, NULL, NULL
    FROM queue_lease s JOIN visible v ON v.id = s.job_id
) t
WHERE %(before)s::int IS NULL OR generation < %(before)s::int
ORDER BY generation DESC
LIMIT %(limit)s::int
