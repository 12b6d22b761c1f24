-- What `held` names (job_id, at, ends_at, is_delayed, payload_version, audit_id) goes back into the schedule. The
    -- transaction wrote its audit before it read this clock: so positions are bounded as those of an enqueue.
    moved AS (
        DELETE FROM dlq_deadletter d USING held h WHERE d.job_id = h.job_id
        RETURNING d.job_id, d.lane_id, coalesce(%(max_attempts)s::smallint, d.max_attempts) AS max_attempts,
            h.ends_at AS deadline, h.payload_version, d.redrive_generation + 1 AS redrive_generation, d.generation,
            d.reconcile OR d.reason = 'uncertain' AS reconcile, d.checkpoint, d.reason, h.at, h.audit_id,
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
        SELECT l.id FROM queue_lane l WHERE l.id IN (SELECT lane_id FROM moved) AND NOT l.is_active
        ORDER BY l.id FOR UPDATE OF l
    ),
    awake AS (UPDATE queue_lane l SET is_active = true, used_at = clock_timestamp() FROM dozing d WHERE l.id = d.id),
    recorded AS (
        INSERT INTO dlq_redrive (
            job_id, redrive_generation, redrive_key, call_hash, note, actor, reason, audit_id, at, led_to, deadline,
            max_attempts, campaign_id
        )
        SELECT job_id, redrive_generation, %(redrive_key)s::text, %(call_hash)s::bytea, %(note)s::text,
            %(actor)s::text, reason, audit_id, at, led_to, deadline, max_attempts, %(campaign_id)s::bigint
        FROM moved
    )
