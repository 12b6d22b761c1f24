-- fsck_jobs: every broken promise about the jobs of one id range, seen at one instant.
-- params: low, high (null: open end)
-- returns job_id, fault, detail
WITH jobs AS MATERIALIZED (
        SELECT id, tenant_id, queue_id, priority, kind, coalesce(dependency, '') AS dependency, request_key, created_at
        FROM queue_job
        WHERE id >= coalesce(%(low)s::bigint, 0) AND id < coalesce(%(high)s::bigint, 9223372036854775807)
    ),
    places AS (
        SELECT 'ready' AS place, job_id, lane_id, generation, attempt, max_attempts, payload_version,
            redrive_generation, CASE WHEN fresh THEN position END AS fresh_position
        FROM queue_readyjob
        UNION ALL
        SELECT 'scheduled', job_id, lane_id, generation, attempt, max_attempts, payload_version, redrive_generation,
            NULL FROM queue_scheduledjob
        UNION ALL
        SELECT 'running', job_id, lane_id, generation, attempt, max_attempts, payload_version, redrive_generation,
            NULL FROM queue_lease
        UNION ALL
        SELECT 'dead', job_id, lane_id, generation, attempt, max_attempts, payload_version, redrive_generation,
            NULL FROM dlq_deadletter
        UNION ALL
        SELECT outcome, job_id, NULL, generation, attempt, NULL, NULL, redrive_generation, NULL FROM queue_result
    ),
    standing AS MATERIALIZED (
        SELECT * FROM places
        WHERE job_id >= coalesce(%(low)s::bigint, 0) AND job_id < coalesce(%(high)s::bigint, 9223372036854775807)
    ),
    history AS MATERIALIZED (
        SELECT job_id, max(generation) AS generation, count(*) FILTER (WHERE outcome = 'succeeded') AS completions
        FROM queue_attempt
        WHERE job_id >= coalesce(%(low)s::bigint, 0) AND job_id < coalesce(%(high)s::bigint, 9223372036854775807)
        GROUP BY job_id
    )
SELECT j.id, 'nowhere' AS fault, 'the job stands in no place' AS detail
FROM jobs j WHERE NOT EXISTS (SELECT FROM standing s WHERE s.job_id = j.id)
UNION ALL
SELECT job_id, 'several_places', string_agg(place, ', ' ORDER BY place) FROM standing
GROUP BY job_id HAVING count(*) > 1
UNION ALL
SELECT s.job_id, 'orphan', s.place || ' without a job'
FROM standing s WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = s.job_id)
UNION ALL
SELECT s.job_id, 'generation_behind', format('%%s at %%s, history at %%s', s.place, s.generation, h.generation)
FROM standing s JOIN history h USING (job_id)
WHERE s.generation < h.generation OR (s.place = 'running' AND s.generation = h.generation)
UNION ALL
SELECT job_id, 'completed_twice', format('%%s completions', completions) FROM history WHERE completions > 1
UNION ALL
SELECT s.job_id, 'completion_unrecorded', 'a result without its attempt'
FROM standing s LEFT JOIN history h USING (job_id)
WHERE s.place = 'succeeded' AND coalesce(h.completions, 0) = 0
UNION ALL
SELECT job_id, 'attempts_exceeded', format('%%s of %%s', attempt, max_attempts) FROM standing
WHERE attempt > max_attempts OR attempt < 0
UNION ALL
SELECT s.job_id, 'wrong_lane', format('lane %%s', s.lane_id)
FROM standing s JOIN jobs j ON j.id = s.job_id LEFT JOIN queue_lane l ON l.id = s.lane_id
WHERE s.lane_id IS NOT NULL
    AND (l.queue_id, l.priority, l.tenant_id, l.kind, l.dependency)
        IS DISTINCT FROM (j.queue_id, j.priority, j.tenant_id, j.kind, j.dependency)
UNION ALL
SELECT s.job_id, 'hidden', format('position %%s is below lane %%s', s.fresh_position, s.lane_id)
FROM standing s JOIN queue_lane l ON l.id = s.lane_id
WHERE s.fresh_position < l.low
UNION ALL
SELECT j.id, 'key_missing', 'the request key does not name this job'
FROM jobs j WHERE j.request_key IS NOT NULL AND NOT EXISTS (
    SELECT FROM queue_requestkey k
    WHERE k.tenant_id = j.tenant_id AND k.queue_id = j.queue_id AND k.key = j.request_key AND k.job_id = j.id
) AND NOT (  -- a message's key may name another once its window is over
    j.kind = 'message' AND j.created_at <= clock_timestamp() - (
        SELECT p.dedup_window_s FROM queue_policyrow p WHERE p.queue_id = j.queue_id
    ) * interval '1 second'
)
UNION ALL
SELECT s.job_id, 'correction_missing', format('payload version %%s', s.payload_version)
FROM standing s WHERE s.payload_version > 0 AND NOT EXISTS (
    SELECT FROM dlq_correction c WHERE c.job_id = s.job_id AND c.version = s.payload_version
)
UNION ALL
SELECT s.job_id, 'redrive_unrecorded', format('redrive generation %%s, recorded %%s', s.redrive_generation, r.latest)
FROM standing s CROSS JOIN LATERAL (
    SELECT coalesce(max(d.redrive_generation), 0) AS latest FROM dlq_redrive d WHERE d.job_id = s.job_id
) r
WHERE s.redrive_generation <> r.latest
ORDER BY 1, 2
