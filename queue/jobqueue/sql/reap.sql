-- reap: take back lapsed leases: to the front of their lane, or out of the schedule when they have crashed too often.
--   What ran may have acted outside: a kind with external effects has its next attempt reconcile.
-- params: limit, unstarted_max (lapses of unstarted leases before they count), crashes_default and
--   message_crashes (messages have a default of their own, where the queue keeps the general one), now
-- returns 0, led_to, null, reason, at and the ticket: those led to `dead` must be quarantined in this transaction
-- locks: lease rows in id order, SKIP LOCKED: a row that is being renewed or completed is somebody's
-- plan: by index
WITH {clock},
    due AS MATERIALIZED (
        -- All that is judged comes from the locked version: a cancel may have come after the snapshot.
        SELECT s.job_id, s.lane_id, s.cancel_requested, s.is_started, s.lapses, s.attempt, s.max_attempts, s.crashes,
            s.deadline, s.reconcile
        FROM queue_lease s
        WHERE s.expires_at <= (SELECT at FROM clock)
        ORDER BY s.expires_at
        LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    judged AS MATERIALIZED (
        SELECT s.job_id, k.at, s.cancel_requested, charged, s.attempt - (NOT charged)::int AS attempt,
            s.crashes + charged::int AS crashes, s.lapses + (NOT charged)::int AS lapses,
            must_reconcile AS reconcile,
            CASE
                WHEN s.cancel_requested THEN NULL
                WHEN l.kind = 'message' AND s.deadline <= k.at THEN NULL  -- will expire, whatever it has been through
                WHEN charged AND s.crashes + 1 >= CASE
                    WHEN l.kind = 'message' AND p.max_crashes = %(crashes_default)s::int THEN %(message_crashes)s::int
                    ELSE p.max_crashes
                END THEN CASE l.kind WHEN 'message' THEN 'exhausted' ELSE 'poison' END
                WHEN s.attempt - (NOT charged)::int >= s.max_attempts THEN
                    CASE WHEN must_reconcile THEN 'uncertain' ELSE 'exhausted' END
                WHEN s.deadline <= k.at AND l.kind <> 'message' THEN 'deadline_exceeded'
            END AS reason
        FROM due s
        JOIN queue_lane l ON l.id = s.lane_id
        JOIN queue_policyrow p ON p.queue_id = l.queue_id
        CROSS JOIN clock k
        LEFT JOIN queue_kindrow n ON n.kind = l.kind
        CROSS JOIN LATERAL (SELECT s.reconcile OR coalesce(n.external_effects, false) AS must_reconcile) r
        CROSS JOIN LATERAL (SELECT s.is_started OR s.lapses + 1 >= %(unstarted_max)s::int AS charged) c
    ),
    ended AS (
        DELETE FROM queue_lease s USING judged j WHERE s.job_id = j.job_id
        RETURNING s.job_id, {s.kept}, j.attempt, s.generation, j.crashes, j.lapses, s.releases, j.reconcile,
            s.checkpoint, s.position, s.worker, s.claimed_at, s.token,
            s.policy_version, s.chosen, s.charged_ms, s.attempt AS ended_attempt, j.at, j.reason,
            CASE WHEN j.charged THEN 'worker_crash' END AS error_class,
            CASE WHEN j.charged THEN 'The lease lapsed while the job was running.'
                ELSE 'The lease lapsed before the job was started.' END AS message,
            CASE WHEN j.cancel_requested THEN 'cancelled' WHEN j.reason IS NULL THEN 'ready' ELSE 'dead' END AS led_to,
            floor(extract(epoch FROM j.at - s.claimed_at) * 1000)::bigint AS service_ms
    ),
    runnable AS (
        INSERT INTO queue_readyjob (job_id, {kept}, {counted}, position, fresh)
        SELECT job_id, {kept}, {counted}, position, false FROM ended WHERE led_to = 'ready'
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
        SELECT job_id, generation, ended_attempt, redrive_generation, substr(sha256(token), 1, 16), NULL, worker,
            claimed_at, at, NULL, service_ms, CASE led_to WHEN 'cancelled' THEN 'cancelled' ELSE 'lease_lost' END,
            led_to, reason, error_class, message, policy_version, chosen
        FROM ended
    ),
    {settled},
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, lease_lost, dead, service_ms)
        SELECT lane_id, min(at), count(*), count(*) FILTER (WHERE led_to = 'dead'), sum(service_ms)
        FROM ended GROUP BY lane_id
    ),
    calls AS (
        -- A call that was begun and never came back has failed.
        SELECT lane_id, min(at) AS at, 0 AS started, 0 AS succeeded, count(error_class) AS failed, 0 AS overloaded,
            NULL::timestamptz AS overloaded_from
        FROM ended GROUP BY lane_id
    ),
    {called},
    {poison_marks}
SELECT 0 AS ord, led_to, NULL AS next_at, reason, at, error_class, message, job_id, {kept}, {counted} FROM ended
