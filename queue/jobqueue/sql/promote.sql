-- promote: due jobs become ready: retries and delayed work at the tail of their lane, released work at its old place.
-- Retries need the budget of their queue (jobqueue.policy.budget); those that it does not allow stay due, and hide nobody.
-- params: limit (of each queue's retries, and of the rest), now
-- returns lane_id and how many became ready there.  locks: scheduled rows, SKIP LOCKED
-- run after `promote_lock`, as a statement of its own: so it counts what the holder before has spent
-- plan: by index
WITH {marked_clock},
    waiting AS MATERIALIZED (
        SELECT p.queue_id, p.retry_budget_share, p.retry_budget_burst,
            k.at - p.retry_budget_window_s * interval '1 second' AS since
        FROM clock k CROSS JOIN queue_policyrow p
        WHERE current_setting('jobsplatform.spends_budgets') = 'true' AND EXISTS (
            SELECT FROM queue_scheduledjob w
            WHERE w.budget_queue_id = p.queue_id AND w.due_at <= (SELECT at FROM clock)
        )
    ),
    unfolded AS MATERIALIZED (
        SELECT l.queue_id, d.at, d.firsts, d.promoted
        FROM queue_lanedelta d JOIN queue_lane l ON l.id = d.lane_id
        WHERE EXISTS (SELECT FROM waiting) AND d.firsts + d.promoted > 0
    ),
    budgets AS MATERIALIZED (
        SELECT q.queue_id, least(%(limit)s::int, greatest(0, floor(
            q.retry_budget_share * coalesce(sum(u.firsts) FILTER (WHERE u.at >= q.since), 0) + q.retry_budget_burst
        ) - coalesce(sum(u.retries), 0)))::int AS retries_left
        FROM waiting q
        LEFT JOIN LATERAL (
            -- A second at the edge of the window counts its retries and not its first attempts.
            SELECT s.second AS at, s.firsts, s.retries FROM queue_queuesecond s
            WHERE s.queue_id = q.queue_id AND s.second > q.since - interval '1 second'
            UNION ALL
            SELECT n.at, n.firsts, n.promoted FROM unfolded n WHERE n.queue_id = q.queue_id AND n.at > q.since
        ) u ON true
        GROUP BY q.queue_id, q.retry_budget_share, q.retry_budget_burst
    ),
    free AS MATERIALIZED (
        SELECT w.job_id FROM queue_scheduledjob w
        WHERE w.budget_queue_id IS NULL AND w.due_at <= (SELECT at FROM clock)
        ORDER BY w.due_at LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    retries AS MATERIALIZED (
        SELECT r.job_id FROM budgets b CROSS JOIN LATERAL (
            SELECT w.job_id FROM queue_scheduledjob w
            WHERE w.budget_queue_id = b.queue_id AND w.due_at <= (SELECT at FROM clock)
            ORDER BY w.due_at LIMIT b.retries_left FOR UPDATE SKIP LOCKED
        ) r
    ),
    due AS MATERIALIZED (SELECT job_id FROM free UNION ALL SELECT job_id FROM retries),
    moved AS (
        DELETE FROM queue_scheduledjob w USING due d WHERE w.job_id = d.job_id
        RETURNING w.job_id, {w.kept}, {w.counted}, w.due_at, w.position, w.budget_queue_id
    ),
    runnable AS (
        INSERT INTO queue_readyjob (
            job_id, lane_id, first_ready_at, max_attempts, deadline, payload_version, redrive_generation, {counted},
            position, fresh
        )
        SELECT m.job_id, m.lane_id, coalesce(m.first_ready_at, k.at), m.max_attempts, m.deadline, m.payload_version,
            m.redrive_generation, {m.counted}, coalesce(m.position, greatest(m.due_at, k.at)), m.position IS NULL
        FROM moved m CROSS JOIN clock k
        ORDER BY m.due_at, m.job_id
        RETURNING lane_id
    ),
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, promoted)
        SELECT m.lane_id, k.at, count(*) FROM moved m CROSS JOIN clock k
        WHERE m.budget_queue_id IS NOT NULL
        GROUP BY m.lane_id, k.at
    ),
    woken AS MATERIALIZED (SELECT DISTINCT lane_id FROM runnable),
    {awake}
SELECT lane_id, count(*) FROM runnable GROUP BY lane_id
