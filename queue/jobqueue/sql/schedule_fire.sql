-- schedule_fire: one fire of each of these schedules: its row, its job, and the schedule moved on, together.
-- Whoever finds a schedule paused, changed, or moved on by another dispatcher does nothing: the guard is `version` and
-- `next_at`, read under the row's lock. The row of the fire is unique, so that no instant has two jobs.
-- params: arrays with one element a schedule, each schedule once: schedule_ids, versions, next_ats (as they were read),
--   nominal_ats (which instant to fire; null: none, only move on), following (null: no further one), skipped (how many
--   fires are passed over), is_paced, lane_ids, reservations (as in enqueue); pace_s, runs_max, now
-- returns ord, job_id, outcome: `fired`, `overlap`, null (only moved on, or fired before), or a refusal that leaves the
--   schedule where it is: `intake_paused`, `unadmitted`, `homeless` (its lane or its queue's policy is not there).
--   A missing ord was not ours to fire.
-- locks: schedules in id order, SKIP LOCKED; lanes in id order
-- plan: by index
WITH {marked_clock},
    asked AS MATERIALIZED (
        SELECT c.ord, c.nominal_at, c.following, c.skipped, c.is_paced, c.lane_id, c.reservation, r.schedule_id,
            r.overlap, r.payload, r.runs
        FROM unnest(
            %(schedule_ids)s::bigint[], %(versions)s::bigint[], %(next_ats)s::timestamptz[],
            %(nominal_ats)s::timestamptz[], %(following)s::timestamptz[], %(skipped)s::int[], %(is_paced)s::bool[],
            %(lane_ids)s::bigint[], %(reservations)s::bigint[]
        ) WITH ORDINALITY AS c(
            schedule_id, version, next_at, nominal_at, following, skipped, is_paced, lane_id, reservation, ord
        )
        JOIN queue_schedulerow r ON r.schedule_id = c.schedule_id
        WHERE r.is_enabled AND r.version = c.version AND r.next_at = c.next_at
        ORDER BY r.schedule_id
        FOR UPDATE OF r SKIP LOCKED
    ),
    held AS (
        DELETE FROM tenants_reservation v WHERE v.id = ANY(%(reservations)s::bigint[]) RETURNING v.id
    ),
    wanted AS MATERIALIZED (SELECT DISTINCT lane_id FROM asked),
    {opened},
    judged AS MATERIALIZED (
        SELECT a.*, l.queue_id, l.priority, l.tenant_id, l.kind, nullif(l.dependency, '') AS dependency,
            coalesce(d.max_attempts, p.max_attempts) AS max_attempts,
            n.live, CASE
                WHEN a.nominal_at IS NULL THEN NULL
                WHEN p.queue_id IS NULL THEN 'homeless'
                WHEN a.overlap = 'skip' AND n.live <> '{}' THEN 'overlap'
                WHEN p.is_intake_paused THEN 'intake_paused'
                WHEN {fire_needs_place}
                THEN 'unadmitted'
                ELSE 'fired'
            END AS verdict
        FROM asked a
        LEFT JOIN queue_lane l ON l.id = a.lane_id AND l.id NOT IN (SELECT id FROM gone)
        LEFT JOIN queue_policyrow p ON p.queue_id = l.queue_id
        LEFT JOIN queue_kindrow d ON d.kind = l.kind
        LEFT JOIN tenants_tenantstate t ON t.tenant_id = l.tenant_id
        CROSS JOIN LATERAL {live_runs} n
    ),
    numbered AS MATERIALIZED (
        SELECT CASE WHEN j.verdict = 'fired' THEN nextval('queue_job_id_seq') END AS job_id, j.*
        FROM (SELECT * FROM judged ORDER BY ord) j
    ),
    entered AS (
        INSERT INTO queue_schedulefire (schedule_id, nominal_at, is_manual, outcome, job_id, fired_at)
        SELECT n.schedule_id, n.nominal_at, false, n.verdict, n.job_id, k.at
        FROM numbered n CROSS JOIN clock k
        WHERE n.verdict IN ('fired', 'overlap')
        ORDER BY n.schedule_id
        ON CONFLICT DO NOTHING
        RETURNING schedule_id
    ),
    settled AS MATERIALIZED (
        -- One row a schedule: joins of these rows with each other would cost the square of their number.
        SELECT n.*, k.at, n.verdict = 'fired' AND n.schedule_id IN (SELECT schedule_id FROM entered) AS is_made
        FROM numbered n CROSS JOIN clock k
    ),
    accepted AS MATERIALIZED (SELECT * FROM settled WHERE is_made),
    intent AS (
        INSERT INTO queue_job (
            id, tenant_id, queue_id, priority, max_attempts, created_at, not_before, deadline, kind, payload,
            payload_ref, request_key, dependency, traceparent
        )
        SELECT job_id, tenant_id, queue_id, priority, max_attempts, at, NULL, NULL, kind, payload, NULL, NULL,
            dependency, NULL
        FROM accepted
    ),
    runnable AS (
        INSERT INTO queue_readyjob (job_id, {kept}, {counted}, position, fresh)
        SELECT job_id, lane_id, at, max_attempts, NULL, 0, 0, 0, 0, 0, 0, 0, false, NULL, at, true
        FROM accepted
    ),
    moved_on AS (
        UPDATE queue_schedulerow r
        SET next_at = s.following,
            due_at = CASE
                WHEN s.is_paced THEN greatest(s.following, s.at + %(pace_s)s::float8 * interval '1 second')
                ELSE s.following
            END,
            missed_count = r.missed_count + s.skipped,
            runs = (CASE WHEN s.is_made THEN s.job_id || s.live ELSE s.live END)[1:%(runs_max)s::int],
            last_nominal_at = CASE WHEN s.is_made THEN s.nominal_at ELSE r.last_nominal_at END,
            last_fired_at = CASE WHEN s.is_made THEN s.at ELSE r.last_fired_at END,
            last_job_id = CASE WHEN s.is_made THEN s.job_id ELSE r.last_job_id END
        FROM settled s
        WHERE r.schedule_id = s.schedule_id AND (s.verdict IS NULL OR s.verdict IN ('fired', 'overlap'))
    )
SELECT ord, CASE WHEN is_made THEN job_id END, CASE WHEN verdict <> 'fired' OR is_made THEN verdict END
FROM settled
