-- enqueue_one: `enqueue_plain` for one job, of a kind that needs no check: without arrays it takes the server a quarter
--   less time.
-- params: lane_id, payload, payload_ref, max_attempts, traceparent; now
-- returns job_id, at, max_attempts; no row: the job is for `enqueue` to judge.  locks: none
-- plan: by index, once
WITH {marked_clock},
    intent AS (
        INSERT INTO queue_job (
            id, tenant_id, queue_id, priority, max_attempts, created_at, kind, payload, payload_ref, dependency,
            traceparent
        )
        SELECT nextval('queue_job_id_seq'), l.tenant_id, l.queue_id, l.priority,
            coalesce(%(max_attempts)s::smallint, k.max_attempts, p.max_attempts), clock.at, l.kind,
            %(payload)s::text, %(payload_ref)s::text, nullif(l.dependency, ''), %(traceparent)s::text
        FROM clock CROSS JOIN (SELECT NULL::bigint AS kind_version) w
        JOIN queue_lane l ON l.id = %(lane_id)s::bigint
        {intake_rules}
        WHERE {is_free}
        RETURNING id, created_at, max_attempts
    )
INSERT INTO queue_readyjob (job_id, {kept}, {counted}, position, fresh)
SELECT id, %(lane_id)s::bigint, created_at, max_attempts, NULL, 0, 0, 0, 0, 0, 0, 0, false, NULL, created_at, true
FROM intent
RETURNING job_id, position, max_attempts
