-- expire: waiting jobs whose deadline has passed: expired if never claimed, else dead letters.
-- params: limit, now
-- returns 0, led_to, null, reason, at and the ticket: those led to `dead` must be quarantined in this transaction
-- locks: ready rows, then scheduled rows, SKIP LOCKED
-- plan: by index
WITH {clock},
    due_ready AS MATERIALIZED (
        SELECT r.job_id FROM queue_readyjob r WHERE r.deadline <= (SELECT at FROM clock)
        ORDER BY r.deadline LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    due_scheduled AS MATERIALIZED (
        SELECT w.job_id FROM queue_scheduledjob w WHERE w.deadline <= (SELECT at FROM clock)
        ORDER BY w.deadline LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    from_ready AS (
        DELETE FROM queue_readyjob r USING due_ready d WHERE r.job_id = d.job_id
        RETURNING r.job_id, {r.kept}, {r.counted}
    ),
    from_scheduled AS (
        DELETE FROM queue_scheduledjob w USING due_scheduled d WHERE w.job_id = d.job_id
        RETURNING w.job_id, {w.kept}, {w.counted}
    ),
    ended AS MATERIALIZED (
        SELECT t.*, k.at,
            CASE WHEN t.generation = 0 OR l.kind = 'message' THEN 'expired' ELSE 'dead' END AS led_to
        FROM (SELECT * FROM from_ready UNION ALL SELECT * FROM from_scheduled) t
        JOIN queue_lane l ON l.id = t.lane_id
        CROSS JOIN clock k
    ),
    result AS (
        INSERT INTO queue_result ({result_columns})
        SELECT job_id, generation, attempt, crashes, redrive_generation, false, at, 'expired', NULL, NULL
        FROM ended WHERE led_to = 'expired'
    ),
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, dead)
        SELECT lane_id, min(at), count(*) FROM ended WHERE led_to = 'dead' GROUP BY lane_id
    )
SELECT 0 AS ord, led_to, NULL AS next_at, CASE led_to WHEN 'dead' THEN 'deadline_exceeded' END AS reason, at,
    NULL AS error_class,
    'The deadline passed before the next try.' AS message, job_id, {kept}, {counted}
FROM ended
