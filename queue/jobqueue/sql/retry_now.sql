-- retry_now: a job that waits for an instant becomes ready at once: at the tail of its lane, or at the place that it has.
-- A retry that its queue's budget holds back is let through, and counted as let through.
-- params: job_id; tenant_id, queue_ids; now
-- returns lane_id, tenant_id, reason (why it waited), due_at.  no row = it does not wait so, or its deadline has passed
-- locks: the job's scheduled row
-- plan: by index
WITH {marked_clock},
    moved AS (
        DELETE FROM queue_scheduledjob w USING queue_lane l, clock k
        WHERE w.job_id = %(job_id)s::bigint AND l.id = w.lane_id AND (w.deadline IS NULL OR w.deadline > k.at)
            AND {in_scope}
        RETURNING w.job_id, {w.kept}, {w.counted}, w.position, w.budget_queue_id, w.reason, w.due_at, l.tenant_id,
            k.at
    ),
    runnable AS (
        INSERT INTO queue_readyjob (
            job_id, lane_id, first_ready_at, max_attempts, deadline, payload_version, redrive_generation, {counted},
            position, fresh
        )
        SELECT m.job_id, m.lane_id, coalesce(m.first_ready_at, m.at), m.max_attempts, m.deadline, m.payload_version,
            m.redrive_generation, {m.counted}, coalesce(m.position, m.at), m.position IS NULL
        FROM moved m
    ),
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, promoted)
        SELECT m.lane_id, m.at, 1 FROM moved m WHERE m.budget_queue_id IS NOT NULL
    ),
    woken AS MATERIALIZED (SELECT lane_id FROM moved),
    {awake}
SELECT lane_id, tenant_id, reason, due_at FROM moved
