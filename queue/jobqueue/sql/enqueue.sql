-- enqueue: durable intents, each with its request key and its ticket in the place where it belongs.
-- params: arrays with one element a job (a null array: null for all); reservations: of a job whose limits were asked,
--   the row that holds its place and goes with this statement, or 0 where none is needed; kind_versions: of a
--   registered kind, the version by which the job was checked; rings, slots, epochs: the slot that this shard must own
--   under that epoch; now
-- returns ord, job_id, null, at, due_at, deadline, max_attempts, dependency of an accepted job, or ord, null and a
--   refusal; beside `unadmitted` (limits must be asked, or the reservation is gone) the deadline where the queue
--   checks it; `misplaced`: the shard does not own the slot, or has slots and was asked without; `unchecked`: the kind has a schema or a dependency, in another version than the job was checked by.
-- An ord that is missing lost its request key to an
-- earlier request (read the key in a new statement), or names a lane that is gone.
-- locks: the slots, shared, in order, to the end of the transaction: who moves them waits; lanes that slept, in id
-- order; the new keys, in key order; waits for a concurrent first use of the same key
-- plan: by index, once
WITH {marked_clock},
    wanted AS MATERIALIZED (SELECT DISTINCT unnest(%(lane_ids)s::bigint[]) AS lane_id),
    {opened},
    owned AS MATERIALIZED (
        SELECT o.ring_id, o.slot
        FROM (SELECT DISTINCT * FROM unnest(%(rings)s::bigint[], %(slots)s::smallint[], %(epochs)s::int[])) AS s(
            ring, slot, epoch
        )
        JOIN queue_slotowner o ON o.ring_id = s.ring AND o.slot = s.slot AND o.epoch = s.epoch
        ORDER BY o.ring_id, o.slot
        FOR SHARE OF o
    ),
    call AS MATERIALIZED (
        SELECT c.*, l.queue_id, l.priority, l.tenant_id, l.kind, nullif(l.dependency, '') AS dependency, clock.at,
            coalesce(c.not_before, clock.at + c.delay_s * interval '1 second') AS due_at,
            coalesce(c.deadline, c.expires_in_s * interval '1 second' + CASE
                WHEN c.expires_from_due THEN greatest(clock.at, c.not_before, clock.at + c.delay_s * interval '1 second')
                ELSE clock.at
            END) AS ends_at,
            coalesce(c.attempts_asked, k.max_attempts, p.max_attempts) AS max_attempts, p.is_intake_paused,
            p.refuse_infeasible, {is_limited} AS is_limited, {is_unchecked} AS is_unchecked
        FROM clock CROSS JOIN unnest(
            %(lane_ids)s::bigint[], %(payloads)s::text[], %(payload_refs)s::text[], %(request_keys)s::text[],
            %(namespaces)s::smallint[], %(fingerprints)s::bytea[], %(not_befores)s::timestamptz[],
            %(delays_s)s::int[], %(deadlines)s::timestamptz[], %(expiries_s)s::int[],
            %(expiries_from_due)s::bool[],
            %(max_attempts)s::smallint[], %(traceparents)s::text[], %(reservations)s::bigint[],
            %(kind_versions)s::bigint[], %(rings)s::bigint[], %(slots)s::smallint[]
        ) WITH ORDINALITY AS c(
            lane_id, payload, payload_ref, request_key, namespace, fingerprint, not_before, delay_s, deadline,
            expires_in_s, expires_from_due, attempts_asked, traceparent, reservation, kind_version, ring, slot, ord
        )
        JOIN queue_lane l ON l.id = c.lane_id AND l.id NOT IN (SELECT id FROM gone)
        {intake_rules}
    ),
    held AS (
        DELETE FROM tenants_reservation v WHERE v.id = ANY(%(reservations)s::bigint[]) RETURNING v.id
    ),
    judged AS MATERIALIZED (
        SELECT *, CASE
            WHEN CASE WHEN ring IS NULL THEN EXISTS (SELECT FROM queue_slotring)
                ELSE (ring, slot) NOT IN (SELECT ring_id, o.slot FROM owned o) END THEN 'misplaced'
            WHEN is_intake_paused THEN 'intake_paused'
            WHEN ends_at <= at THEN 'deadline_in_past'
            WHEN ends_at <= due_at THEN 'due_after_deadline'
            WHEN is_unchecked THEN 'unchecked'
            WHEN (is_limited OR refuse_infeasible AND ends_at IS NOT NULL)
                AND NOT coalesce(reservation = 0 OR reservation IN (SELECT id FROM held), false) THEN 'unadmitted'
        END AS refusal
        FROM call
    ),
    numbered AS MATERIALIZED (
        SELECT nextval('queue_job_id_seq') AS job_id, j.*
        FROM (SELECT * FROM judged WHERE refusal IS NULL ORDER BY ord) j
    ),
    keyed AS (
        INSERT INTO queue_requestkey (tenant_id, queue_id, namespace, key, job_id, fingerprint, accepted_at)
        SELECT tenant_id, queue_id, coalesce(namespace, 0), request_key, job_id, fingerprint, at
        FROM numbered WHERE request_key IS NOT NULL
        ORDER BY tenant_id, queue_id, namespace, request_key
        ON CONFLICT DO NOTHING
        RETURNING job_id
    ),
    accepted AS MATERIALIZED (
        SELECT * FROM numbered WHERE request_key IS NULL OR job_id IN (SELECT job_id FROM keyed)
    ),
    intent AS (
        INSERT INTO queue_job (
            id, tenant_id, queue_id, priority, max_attempts, created_at, not_before, deadline, kind, payload,
            payload_ref, request_key, dependency, traceparent
        )
        SELECT job_id, tenant_id, queue_id, priority, max_attempts, at, due_at, ends_at, kind, payload,
            payload_ref, request_key, dependency, traceparent
        FROM accepted
    ),
    waiting AS (
        INSERT INTO queue_scheduledjob (job_id, {kept}, {counted}, due_at, reason)
        SELECT job_id, lane_id, NULL, max_attempts, ends_at, 0, 0, 0, 0, 0, 0, 0, false, NULL, due_at, 'delayed'
        FROM accepted WHERE due_at > at
    ),
    runnable AS (
        INSERT INTO queue_readyjob (job_id, {kept}, {counted}, position, fresh)
        SELECT job_id, lane_id, at, max_attempts, ends_at, 0, 0, 0, 0, 0, 0, 0, false, NULL, at, true
        FROM accepted WHERE due_at IS NULL OR due_at <= at
    )
SELECT ord, job_id, NULL AS refusal, at, due_at, ends_at, max_attempts, dependency FROM accepted
UNION ALL
SELECT ord, NULL, refusal, NULL, NULL, CASE WHEN refusal = 'unadmitted' AND refuse_infeasible THEN ends_at END, NULL,
    NULL
FROM judged WHERE refusal IS NOT NULL
