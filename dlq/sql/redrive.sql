-- redrive: a dead letter goes back into the schedule under the next redrive generation; attempts and crashes restart.
-- params: job_id, note, actor, redrive_key, call_hash, audit_id, not_before, deadline, max_attempts, now;
--   tenant_id, queue_ids
-- returns redrive_generation, led_to (ready or scheduled).  no row: it is not a dead letter any more, needs a
-- correction, reached its limit, or its deadline has passed (read why in a new statement)
-- locks: the dead letter
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
    held AS MATERIALIZED (
        SELECT d.job_id, k.at, coalesce(%(deadline)s::timestamptz, d.deadline) AS ends_at,
            %(not_before)s::timestamptz > k.at AS is_delayed,
            coalesce((SELECT max(c.version) FROM dlq_correction c WHERE c.job_id = d.job_id), 0) AS payload_version
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
    moved AS (
        DELETE FROM dlq_deadletter d USING held h WHERE d.job_id = h.job_id
        RETURNING d.job_id, d.lane_id, coalesce(%(max_attempts)s::smallint, d.max_attempts) AS max_attempts,
            h.ends_at AS deadline, h.payload_version, d.redrive_generation + 1 AS redrive_generation, d.generation,
            d.reconcile OR d.reason = 'uncertain' AS reconcile, d.checkpoint, d.reason, h.at,
            CASE WHEN h.is_delayed THEN 'scheduled' ELSE 'ready' END AS led_to
    ),
    runnable AS (
        INSERT INTO queue_readyjob (
            job_id, lane_id, first_ready_at, max_attempts, deadline, payload_version, redrive_generation, attempt,
            generation, crashes, lapses, releases, reconcile, checkpoint, position, fresh
        )
        SELECT job_id, lane_id, at, max_attempts, deadline, payload_version, redrive_generation, 0, generation, 0, 0,
            0, reconcile, checkpoint, at, true
        FROM moved WHERE led_to = 'ready'
    ),
    waiting AS (
        INSERT INTO queue_scheduledjob (
            job_id, lane_id, max_attempts, deadline, payload_version, redrive_generation, attempt, generation, crashes,
            lapses, releases, reconcile, checkpoint, due_at, reason
        )
        SELECT job_id, lane_id, max_attempts, deadline, payload_version, redrive_generation, 0, generation, 0, 0, 0,
            reconcile, checkpoint, %(not_before)s::timestamptz, 'redriven'
        FROM moved WHERE led_to = 'scheduled'
    ),
    dozing AS MATERIALIZED (
        SELECT l.id FROM queue_lane l JOIN moved m ON m.lane_id = l.id WHERE NOT l.is_active FOR UPDATE OF l
    ),
    awake AS (UPDATE queue_lane l SET is_active = true FROM dozing d WHERE l.id = d.id),
    recorded AS (
        INSERT INTO dlq_redrive (
            job_id, redrive_generation, redrive_key, call_hash, note, actor, reason, audit_id, at, led_to
        )
        SELECT job_id, redrive_generation, %(redrive_key)s::text, %(call_hash)s::bytea, %(note)s::text,
            %(actor)s::text, reason, %(audit_id)s::bigint, at, led_to
        FROM moved
    )
SELECT redrive_generation, led_to FROM moved
