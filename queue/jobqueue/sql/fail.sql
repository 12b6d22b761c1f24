-- fail: end attempts that did not succeed: to be tried again, out of the schedule, or cancelled as was asked.
-- params: job_ids, generations, token_hashes, call_hashes, error_classes, messages, retry_after_s, jitters (one a call;
--   a jitter is in [0.5, 1]); tenant_id, queue_ids; now
-- returns ord, led_to, next_at, reason, at and the ticket: those led to `dead` must be quarantined in this transaction
-- no row = not the caller's live lease.  locks: lease rows in id order.  backoff: as jobqueue.policy.backoff
-- plan: by index, once
WITH {clock},
    call AS MATERIALIZED (
        SELECT * FROM unnest(
            %(job_ids)s::bigint[], %(generations)s::int[], %(token_hashes)s::bytea[], %(call_hashes)s::bytea[],
            %(error_classes)s::text[], %(messages)s::text[], %(retry_after_s)s::int[], %(jitters)s::float8[]
        ) WITH ORDINALITY AS c(
            job_id, generation, token_hash, call_hash, error_class, message, retry_after_s, jitter, ord
        )
    ),
    held AS MATERIALIZED (
        SELECT s.job_id, s.lane_id, s.attempt, s.max_attempts, s.deadline, s.cancel_requested, l.kind, c.ord,
            c.token_hash, c.call_hash, c.error_class, c.message,
            -- A clock that was set back ends no attempt before its start.
            greatest(k.at, s.claimed_at) AS at,
            k.at + greatest(
                coalesce(c.retry_after_s, 0),
                c.jitter * least(
                    coalesce(n.backoff_cap_s, p.backoff_cap_s),
                    coalesce(n.backoff_base_s, p.backoff_base_s) * power(2, least(s.attempt - 1, 62))
                )
            ) * interval '1 second' AS again_at
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
    judged AS MATERIALIZED (
        SELECT h.*, CASE
            WHEN h.cancel_requested THEN NULL
            WHEN h.kind = 'message' AND h.deadline <= h.at THEN NULL  -- will expire, whatever it has been through
            WHEN h.error_class = 'permanent' THEN 'invalid'
            WHEN h.attempt >= h.max_attempts AND h.error_class = 'uncertain' THEN 'uncertain'
            WHEN h.attempt >= h.max_attempts THEN 'exhausted'
            WHEN h.again_at >= h.deadline AND h.kind <> 'message' THEN 'deadline_exceeded'
        END AS reason
        FROM held h
    ),
    ended AS (
        DELETE FROM queue_lease s USING judged j WHERE s.job_id = j.job_id
        RETURNING s.job_id, {s.kept}, s.attempt, s.generation, s.crashes, s.lapses, s.releases,
            s.reconcile OR j.error_class = 'uncertain' AS reconcile, s.checkpoint, s.worker, s.claimed_at,
            s.policy_version, s.chosen, s.charged_ms,
            j.ord, j.at, j.token_hash, j.call_hash, j.error_class, j.message, j.reason,
            CASE WHEN j.cancel_requested THEN 'cancelled' WHEN j.reason IS NULL THEN 'scheduled' ELSE 'dead' END
                AS led_to,
            CASE WHEN NOT j.cancel_requested AND j.reason IS NULL THEN j.again_at END AS next_at,
            floor(extract(epoch FROM j.at - s.claimed_at) * 1000)::bigint AS service_ms
    ),
    waiting AS (
        INSERT INTO queue_scheduledjob (job_id, {kept}, {counted}, due_at, position, reason, budget_queue_id)
        SELECT e.job_id, {e.kept}, {e.counted}, e.next_at, NULL, 'retry', l.queue_id
        FROM ended e JOIN queue_lane l ON l.id = e.lane_id
        WHERE e.led_to = 'scheduled'
    ),
    result AS (
        INSERT INTO queue_result ({result_columns})
        SELECT job_id, generation, attempt, crashes, redrive_generation, false, at, 'cancelled', NULL, NULL
        FROM ended WHERE led_to = 'cancelled'
    ),
    history AS (
        INSERT INTO queue_attempt ({attempt_columns})
        SELECT job_id, generation, attempt, redrive_generation, token_hash, call_hash, worker, claimed_at, at, next_at,
            service_ms, CASE led_to WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END, led_to, reason, error_class,
            message, policy_version, chosen
        FROM ended
    ),
    {settled},
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, failed, retried, dead, service_ms)
        SELECT lane_id, min(at), count(*), count(*) FILTER (WHERE led_to = 'scheduled'),
            count(*) FILTER (WHERE led_to = 'dead'), sum(service_ms)
        FROM ended GROUP BY lane_id
    ),
    calls AS (
        -- `permanent` says something of the payload and nothing of the dependency.
        SELECT lane_id, min(at) AS at, 0 AS started, 0 AS succeeded,
            count(*) FILTER (WHERE error_class <> 'permanent') AS failed,
            count(*) FILTER (WHERE error_class = 'overload') AS overloaded,
            max(claimed_at) FILTER (WHERE error_class = 'overload') AS overloaded_from
        FROM ended GROUP BY lane_id
    ),
    {called}
SELECT ord, led_to, next_at, reason, at, error_class, message, job_id, {kept}, {counted} FROM ended
