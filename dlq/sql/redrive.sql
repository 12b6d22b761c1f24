-- redrive: a dead letter goes back into the schedule under the next redrive generation; attempts and crashes restart.
-- params: job_id, note, actor, redrive_key, call_hash, audit_id, not_before, deadline, max_attempts, campaign_id (null),
--   now; tenant_id, queue_ids
-- returns redrive_generation, led_to (ready or scheduled).  no row: it is not a dead letter any more, needs a
-- correction, reached its limit, or its deadline has passed (read why in a new statement)
-- locks: the dead letter
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
    held AS MATERIALIZED (
        SELECT d.job_id, k.at, coalesce(%(deadline)s::timestamptz, d.deadline) AS ends_at,
            %(not_before)s::timestamptz > k.at AS is_delayed,
            coalesce((SELECT max(c.version) FROM dlq_correction c WHERE c.job_id = d.job_id), 0) AS payload_version,
            %(audit_id)s::bigint AS audit_id
        FROM dlq_deadletter d
        JOIN queue_job l ON l.id = d.job_id
        JOIN queue_policyrow p ON p.queue_id = l.queue_id
        CROSS JOIN clock k
        WHERE d.job_id = %(job_id)s::bigint
            AND d.redrive_generation < p.max_redrives
            AND (d.reason NOT IN ('invalid', 'poison') OR EXISTS (
                SELECT FROM dlq_correction c
                WHERE c.job_id = d.job_id AND c.redrive_generation = d.redrive_generation
            ))
            AND coalesce(coalesce(%(deadline)s::timestamptz, d.deadline) > greatest(k.at, %(not_before)s::timestamptz),
                true)
            AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
            AND (%(queue_ids)s::bigint[] IS NULL OR l.queue_id = ANY(%(queue_ids)s::bigint[]))
        FOR UPDATE OF d
    ),
    {sent_back}
SELECT redrive_generation, led_to FROM moved
