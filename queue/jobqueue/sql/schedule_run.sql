-- schedule_run: a job of a schedule now, whether it is paused or not, beside its fires.
-- params: schedule_id, lane_id, reservation (as in enqueue), run_key (null: none), runs_max, now
-- returns job_id, outcome: `fired`, `repeated` (the key has run it before), null (the key is being used: repeat), or a
--   refusal as in schedule_fire. No row: the shard does not know the schedule.
-- locks: the schedule; lanes in id order.  waits for a fire of the same schedule
-- plan: by index
WITH {marked_clock},
    asked AS MATERIALIZED (
        SELECT r.schedule_id, r.payload, r.runs, %(lane_id)s::bigint AS lane_id, %(reservation)s::bigint AS reservation
        FROM queue_schedulerow r WHERE r.schedule_id = %(schedule_id)s::bigint
        FOR UPDATE OF r
    ),
    held AS (DELETE FROM tenants_reservation v WHERE v.id = %(reservation)s::bigint RETURNING v.id),
    earlier AS MATERIALIZED (
        SELECT f.job_id FROM queue_schedulefire f
        WHERE f.schedule_id = %(schedule_id)s::bigint AND f.run_key = %(run_key)s::text
    ),
    wanted AS MATERIALIZED (SELECT DISTINCT lane_id FROM asked),
    {opened},
    judged AS MATERIALIZED (
        SELECT a.*, l.queue_id, l.priority, l.tenant_id, l.kind, nullif(l.dependency, '') AS dependency,
            coalesce(d.max_attempts, p.max_attempts) AS max_attempts,
            n.live, CASE
                WHEN EXISTS (SELECT FROM earlier) THEN 'repeated'
                WHEN p.queue_id IS NULL THEN 'homeless'
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
        SELECT nextval('queue_job_id_seq') AS job_id, j.* FROM judged j WHERE verdict = 'fired'
    ),
    entered AS (
        INSERT INTO queue_schedulefire (schedule_id, nominal_at, is_manual, outcome, job_id, run_key, fired_at)
        SELECT n.schedule_id, k.at, true, n.verdict, n.job_id, %(run_key)s::text, k.at
        FROM numbered n CROSS JOIN clock k
        ON CONFLICT DO NOTHING
        RETURNING schedule_id
    ),
    accepted AS MATERIALIZED (
        SELECT n.*, k.at FROM numbered n CROSS JOIN clock k
        WHERE n.schedule_id IN (SELECT schedule_id FROM entered)
    ),
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
    noted AS (
        UPDATE queue_schedulerow r
        SET runs = (f.job_id || j.live)[1:%(runs_max)s::int], last_fired_at = f.at, last_job_id = f.job_id
        FROM accepted f JOIN judged j ON j.schedule_id = f.schedule_id
        WHERE r.schedule_id = f.schedule_id
    )
SELECT coalesce(f.job_id, e.job_id), CASE WHEN j.verdict = 'fired' AND f.job_id IS NULL THEN NULL ELSE j.verdict END
FROM judged j LEFT JOIN accepted f ON f.schedule_id = j.schedule_id LEFT JOIN earlier e ON true
