-- timeline_attempts: a job's attempts as its history tells them, newest first; the one that runs has not ended.
-- params: job_id, limit; tenant_id, queue_ids
-- returns generation, attempt, redrive_generation, worker, claimed_at, ended_at, next_at, outcome, led_to, reason,
--   error_class, message, chosen, policy_version
-- plan: by index
WITH visible AS MATERIALIZED (SELECT l.id FROM queue_job l WHERE l.id = %(job_id)s::bigint AND {in_scope})
SELECT * FROM (
    SELECT a.generation, a.attempt, a.redrive_generation, a.worker, a.claimed_at, a.ended_at, a.next_at, a.outcome,
        a.led_to, a.reason, a.error_class, a.message, a.chosen, a.policy_version
    FROM visible v JOIN queue_attempt a ON a.job_id = v.id
    UNION ALL
    SELECT s.generation, s.attempt, s.redrive_generation, s.worker, s.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, s.chosen, s.policy_version
    FROM visible v JOIN queue_lease s ON s.job_id = v.id
) t
ORDER BY generation DESC
LIMIT %(limit)s::int
