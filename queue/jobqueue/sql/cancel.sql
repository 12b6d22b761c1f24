-- cancel: end a waiting job, or ask the worker of a running one to stop.
-- params: job_id, tenant_id, queue_ids, now
-- returns led_to (`cancelled` or `running`) and tenant_id.  no row = it stands in neither place for this statement: read again
-- locks: the job's row in the place where it is
-- plan: by index
WITH {clock},
    from_ready AS (
        DELETE FROM queue_readyjob r USING queue_lane l
        WHERE r.job_id = %(job_id)s::bigint AND l.id = r.lane_id AND {in_scope}
        RETURNING r.job_id, l.tenant_id, r.generation, r.attempt, r.crashes, r.redrive_generation
    ),
    from_scheduled AS (
        DELETE FROM queue_scheduledjob w USING queue_lane l
        WHERE w.job_id = %(job_id)s::bigint AND l.id = w.lane_id AND {in_scope}
        RETURNING w.job_id, l.tenant_id, w.generation, w.attempt, w.crashes, w.redrive_generation
    ),
    asked AS (
        UPDATE queue_lease s SET cancel_requested = true FROM queue_lane l
        WHERE s.job_id = %(job_id)s::bigint AND l.id = s.lane_id AND {in_scope}
        RETURNING s.job_id, l.tenant_id
    ),
    ended AS MATERIALIZED (SELECT * FROM from_ready UNION ALL SELECT * FROM from_scheduled),
    result AS (
        INSERT INTO queue_result ({result_columns})
        SELECT job_id, generation, attempt, crashes, redrive_generation, false, k.at, 'cancelled', NULL, NULL
        FROM ended CROSS JOIN clock k
    )
SELECT 'cancelled', tenant_id FROM ended UNION ALL SELECT 'running', tenant_id FROM asked
