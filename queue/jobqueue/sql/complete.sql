-- complete: the first durable result of live leases; the jobs are over.
-- params: job_ids, generations, token_hashes, call_hashes, result_hashes, results (one a call); tenant_id, queue_ids; now
-- returns ord, completed_at, late.  no row = not the caller's live lease.  locks: lease rows in id order
-- plan: by index, once
WITH {clock},
    call AS MATERIALIZED (
        SELECT * FROM unnest(
            %(job_ids)s::bigint[], %(generations)s::int[], %(token_hashes)s::bytea[], %(call_hashes)s::bytea[],
            %(result_hashes)s::bytea[], %(results)s::text[]
        ) WITH ORDINALITY AS c(job_id, generation, token_hash, call_hash, result_hash, result, ord)
    ),
    held AS MATERIALIZED (
        SELECT s.job_id, c.ord, c.token_hash, c.call_hash, c.result_hash, c.result,
            -- A clock that was set back ends no attempt before its start.
            greatest(k.at, s.claimed_at) AS at
        FROM call c
        JOIN queue_lease s ON s.job_id = c.job_id
        JOIN queue_lane l ON l.id = s.lane_id
        CROSS JOIN clock k
        WHERE s.generation = c.generation AND substr(sha256(s.token), 1, 16) = c.token_hash AND s.expires_at > k.at
            AND {in_scope}
        ORDER BY s.job_id
        FOR UPDATE OF s
    ),
    ended AS (
        DELETE FROM queue_lease s USING held h WHERE s.job_id = h.job_id
        RETURNING s.job_id, s.lane_id, s.generation, s.attempt, s.crashes, s.redrive_generation, s.worker,
            s.claimed_at, s.policy_version, s.chosen, s.charged_ms, h.at, h.ord, h.token_hash, h.call_hash, h.result_hash, h.result,
            coalesce(s.deadline < h.at, false) AS late,
            floor(extract(epoch FROM h.at - s.claimed_at) * 1000)::bigint AS service_ms
    ),
    result AS (
        INSERT INTO queue_result ({result_columns})
        SELECT job_id, generation, attempt, crashes, redrive_generation, late, at, 'succeeded', result_hash, result
        FROM ended
    ),
    history AS (
        INSERT INTO queue_attempt ({attempt_columns})
        SELECT job_id, generation, attempt, redrive_generation, token_hash, call_hash, worker, claimed_at, at, NULL,
            service_ms, 'succeeded', 'succeeded', NULL, NULL, NULL, policy_version, chosen
        FROM ended
    ),
    {settled},
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, succeeded, service_ms)
        SELECT lane_id, min(at), count(*), sum(service_ms) FROM ended GROUP BY lane_id
        RETURNING lane_id, at, succeeded
    ),
    calls AS (
        SELECT lane_id, at, 0 AS started, succeeded, 0 AS failed, 0 AS overloaded, NULL::timestamptz AS overloaded_from
        FROM ledger
    ),
    {called}
SELECT ord, at, late FROM ended
