-- enqueue_plain: durable intents, each with its ticket, of new jobs that have no request key and are due at once, in
-- lanes that nothing bars: what most calls ask, in a statement that takes a third of the time of `enqueue`.
-- params: lanes: those of the jobs, each once, and kind_versions (of a registered kind, the version by which their
--   jobs were checked; null: none); arrays with one element a job (a null array: null for all): lane_ids, payloads,
--   payload_refs, max_attempts, traceparents; now
-- returns at, and arrays with an element each of those accepted: ords, job_ids, their max_attempts. The others stand
--   in a lane that sleeps or is gone, or are for `enqueue` to judge: their queue's intake is paused, limits must be
--   asked, their kind was checked by another version, or the shard has slots.
-- locks: none
-- plan: by index, once
WITH {marked_clock},
    free AS MATERIALIZED (
        SELECT l.id AS lane_id, l.queue_id, l.priority, l.tenant_id, l.kind, nullif(l.dependency, '') AS dependency,
            coalesce(k.max_attempts, p.max_attempts) AS max_attempts
        FROM unnest(%(lanes)s::bigint[], %(kind_versions)s::bigint[]) AS w(lane_id, kind_version)
        JOIN queue_lane l ON l.id = w.lane_id
        {intake_rules}
        WHERE {is_free}
    ),
    accepted AS MATERIALIZED (
        SELECT nextval('queue_job_id_seq') AS job_id, c.ord, clock.at, f.lane_id, f.queue_id, f.priority, f.tenant_id,
            f.kind, f.dependency, coalesce(c.attempts_asked, f.max_attempts) AS max_attempts, c.payload,
            c.payload_ref, c.traceparent
        FROM clock CROSS JOIN unnest(
            %(lane_ids)s::bigint[], %(payloads)s::text[], %(payload_refs)s::text[], %(max_attempts)s::smallint[],
            %(traceparents)s::text[]
        ) WITH ORDINALITY AS c(lane_id, payload, payload_ref, attempts_asked, traceparent, ord)
        CROSS JOIN LATERAL (SELECT * FROM free WHERE free.lane_id = c.lane_id OFFSET 0) f  -- in the order of the call
    ),
    intent AS (
        INSERT INTO queue_job (
            id, tenant_id, queue_id, priority, max_attempts, created_at, kind, payload, payload_ref, dependency,
            traceparent
        )
        SELECT job_id, tenant_id, queue_id, priority, max_attempts, at, kind, payload, payload_ref, dependency,
            traceparent
        FROM accepted
    ),
    runnable AS (
        INSERT INTO queue_readyjob (job_id, {kept}, {counted}, position, fresh)
        SELECT job_id, lane_id, at, max_attempts, NULL, 0, 0, 0, 0, 0, 0, 0, false, NULL, at, true
        FROM accepted
    )
SELECT (SELECT at FROM clock), array_agg(ord), array_agg(job_id), array_agg(max_attempts) FROM accepted
