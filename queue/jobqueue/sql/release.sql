-- release: give live leases back uncharged; the job keeps its place in its lane. What had been started may have acted
--   outside: a kind with external effects has its next attempt reconcile.
-- params: job_ids, generations, token_hashes, call_hashes, delays_s, counted (whether it counts towards
--   max_releases; null: if the job was started), one a call each; tenant_id, queue_ids; now
-- returns ord, led_to, next_at, reason, at and the ticket: those led to `dead` must be quarantined in this transaction
-- no row = not the caller's live lease.  locks: lease rows in id order
-- plan: by index, once
WITH {clock},
    call AS MATERIALIZED (
        SELECT * FROM unnest(
            %(job_ids)s::bigint[], %(generations)s::int[], %(token_hashes)s::bytea[], %(call_hashes)s::bytea[],
            %(delays_s)s::int[], %(counted)s::bool[]
        ) WITH ORDINALITY AS c(job_id, generation, token_hash, call_hash, delay_s, counted, ord)
    ),
    held AS MATERIALIZED (
        SELECT s.job_id, c.ord, c.token_hash, c.call_hash,
            -- A clock that was set back ends no attempt before its start.
            greatest(k.at, s.claimed_at) AS at,
            s.releases + coalesce(c.counted, s.is_started)::int AS releases,
            s.reconcile OR s.is_started AND coalesce(n.external_effects, false) AS reconcile,
            CASE WHEN c.delay_s > 0 THEN k.at + c.delay_s * interval '1 second' END AS due_at,
            CASE
                WHEN s.cancel_requested THEN 'cancelled'
                WHEN coalesce(c.counted, s.is_started) AND s.releases + 1 > p.max_releases THEN 'dead'
                WHEN c.delay_s > 0 THEN 'scheduled'
                ELSE 'ready'
            END AS led_to
        FROM call c
        JOIN queue_lease s ON s.job_id = c.job_id
        JOIN queue_lane l ON l.id = s.lane_id
        JOIN queue_policyrow p ON p.queue_id = l.queue_id
        LEFT JOIN queue_kindrow n ON n.kind = l.kind
        CROSS JOIN clock k
        WHERE s.generation = c.generation AND substr(sha256(s.token), 1, 16) = c.token_hash AND s.expires_at > k.at
            AND {in_scope}
        ORDER BY s.job_id
        FOR UPDATE OF s
    ),
    ended AS (
        DELETE FROM queue_lease s USING held h WHERE s.job_id = h.job_id
        RETURNING s.job_id, {s.kept}, s.attempt - 1 AS attempt, s.generation, s.crashes, s.lapses,
            h.releases, h.reconcile, s.checkpoint, s.position, s.worker, s.claimed_at,
            s.policy_version, s.chosen, s.charged_ms,
            s.attempt AS ended_attempt, h.ord, h.at, h.token_hash, h.call_hash, h.led_to,
            CASE h.led_to WHEN 'scheduled' THEN h.due_at END AS next_at,
            CASE h.led_to WHEN 'dead' THEN 'released_too_often' END AS reason,
            floor(extract(epoch FROM h.at - s.claimed_at) * 1000)::bigint AS service_ms
    ),
    runnable AS (
        INSERT INTO queue_readyjob (job_id, {kept}, {counted}, position, fresh)
        SELECT job_id, {kept}, {counted}, position, false FROM ended WHERE led_to = 'ready'
    ),
    waiting AS (
        INSERT INTO queue_scheduledjob (job_id, {kept}, {counted}, due_at, position, reason)
        SELECT job_id, {kept}, {counted}, next_at, position, 'released' FROM ended WHERE led_to = 'scheduled'
    ),
    result AS (
        INSERT INTO queue_result ({result_columns})
        SELECT job_id, generation, attempt, crashes, redrive_generation, false, at, 'cancelled', NULL, NULL
        FROM ended WHERE led_to = 'cancelled'
    ),
    woken AS MATERIALIZED (SELECT DISTINCT lane_id FROM ended WHERE led_to = 'ready'),
    {awake},
    history AS (
        INSERT INTO queue_attempt ({attempt_columns})
        SELECT job_id, generation, ended_attempt, redrive_generation, token_hash, call_hash, worker, claimed_at, at,
            next_at, service_ms, CASE led_to WHEN 'cancelled' THEN 'cancelled' ELSE 'released' END, led_to, reason,
            NULL, NULL, policy_version, chosen
        FROM ended
    ),
    {settled},
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, dead, service_ms)
        SELECT lane_id, min(at), count(*) FILTER (WHERE led_to = 'dead'), sum(service_ms)
        FROM ended GROUP BY lane_id
    )
SELECT ord, led_to, next_at, reason, at, NULL AS error_class, NULL AS message, job_id, {kept}, {counted} FROM ended
