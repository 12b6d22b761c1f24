-- fsck_repair: jobs that stand nowhere go back to scheduled, above every generation that was ever handed out.
-- A lease that was lost may have run one generation beyond the history, so the next claim is two beyond it.
-- params: job_ids, lane_ids (one a job), now
-- returns job_id, tenant_id, generation of those put back.  run after fsck_lock and lane_hold in the same transaction
-- What the latest redrive said of deadline and attempts holds, as it did for the ticket that was lost.
-- A job whose last attempt succeeded is left alone: its result is lost, and running it again is for people to decide.
WITH {clock},
    lost AS MATERIALIZED (
        SELECT j.id AS job_id, j.tenant_id, a.lane_id, coalesce(r.max_attempts, j.max_attempts) AS max_attempts,
            CASE WHEN r.max_attempts IS NULL THEN j.deadline ELSE r.deadline END AS deadline,
            coalesce(h.generation, 0) + 1 AS generation,
            CASE WHEN h.redrive_generation < r.redrive_generation THEN 0
                ELSE least(coalesce(h.attempt, 0), coalesce(r.max_attempts, j.max_attempts) - 1) END AS attempt,
            coalesce(r.redrive_generation, 0) AS redrive_generation, coalesce(c.version, 0) AS payload_version
        FROM unnest(%(job_ids)s::bigint[], %(lane_ids)s::bigint[]) AS a(job_id, lane_id)
        JOIN queue_lane k ON k.id = a.lane_id
        JOIN queue_job j ON j.id = a.job_id
        LEFT JOIN LATERAL (
            SELECT x.generation, x.attempt, x.outcome, x.redrive_generation FROM queue_attempt x
            WHERE x.job_id = j.id ORDER BY x.generation DESC LIMIT 1
        ) h ON true
        LEFT JOIN LATERAL (
            SELECT x.redrive_generation, x.deadline, x.max_attempts FROM dlq_redrive x
            WHERE x.job_id = j.id ORDER BY x.redrive_generation DESC LIMIT 1
        ) r ON true
        LEFT JOIN LATERAL (SELECT max(x.version) AS version FROM dlq_correction x WHERE x.job_id = j.id) c ON true
        WHERE h.outcome IS DISTINCT FROM 'succeeded'
            AND NOT EXISTS (SELECT FROM queue_readyjob x WHERE x.job_id = j.id)
            AND NOT EXISTS (SELECT FROM queue_scheduledjob x WHERE x.job_id = j.id)
            AND NOT EXISTS (SELECT FROM queue_lease x WHERE x.job_id = j.id)
            AND NOT EXISTS (SELECT FROM queue_result x WHERE x.job_id = j.id)
            AND NOT EXISTS (SELECT FROM dlq_deadletter x WHERE x.job_id = j.id)
        ORDER BY j.id
    ),
    put_back AS (
        INSERT INTO queue_scheduledjob (job_id, {kept}, {counted}, due_at, position, reason)
        SELECT job_id, lane_id, NULL, max_attempts, deadline, payload_version, redrive_generation, attempt, generation,
            0, 0, 0, false, NULL, (SELECT at FROM clock), NULL, 'repaired'
        FROM lost
        ON CONFLICT DO NOTHING
        RETURNING job_id
    )
SELECT l.job_id, l.tenant_id, l.generation FROM lost l JOIN put_back USING (job_id)
