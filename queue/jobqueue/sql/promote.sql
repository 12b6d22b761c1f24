-- promote: due jobs become ready: retries and delayed work at the tail of their lane, released work at its old place.
-- params: limit, now
-- returns lane_id and how many became ready there.  locks: scheduled rows, SKIP LOCKED
-- plan: by index
WITH {marked_clock},
    due AS MATERIALIZED (
        SELECT w.job_id FROM queue_scheduledjob w WHERE w.due_at <= (SELECT at FROM clock)
        ORDER BY w.due_at LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    moved AS (
        DELETE FROM queue_scheduledjob w USING due d WHERE w.job_id = d.job_id
        RETURNING w.job_id, {w.kept}, {w.counted}, w.due_at, w.position
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
    woken AS MATERIALIZED (SELECT DISTINCT lane_id FROM runnable),
    {awake}
SELECT lane_id, count(*) FROM runnable GROUP BY lane_id
