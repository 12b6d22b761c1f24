-- redrive_why: what decides whether a dead letter may go back, in one statement.
-- params: job_id, deadline, not_before, now; tenant_id, queue_ids
-- no row: no such job for the caller
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at)
SELECT l.tenant_id, d.job_id IS NOT NULL AS is_dead, d.reason, d.redrive_generation,
    EXISTS (
        SELECT FROM dlq_correction c WHERE c.job_id = l.id AND c.redrive_generation = d.redrive_generation
    ) AS is_corrected,
    p.max_redrives,
    coalesce(d.deadline <= k.at, false),
    coalesce(%(deadline)s::timestamptz <= k.at, false),
    coalesce(coalesce(%(deadline)s::timestamptz, d.deadline) <= %(not_before)s::timestamptz, false),
    (SELECT max(r.redrive_generation) FROM dlq_redrive r WHERE r.job_id = l.id),
    NOT EXISTS (SELECT FROM queue_result f WHERE f.job_id = l.id) AS is_live
FROM queue_job l
CROSS JOIN clock k
JOIN queue_policyrow p ON p.queue_id = l.queue_id
LEFT JOIN dlq_deadletter d ON d.job_id = l.id
WHERE l.id = %(job_id)s::bigint AND {in_scope}
