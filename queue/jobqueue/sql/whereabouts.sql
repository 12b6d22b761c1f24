-- whereabouts: where jobs stand and how one generation of each ended; all places in one statement.
-- params: job_ids, generations, token_hashes (one a job; generation 0: none asked); tenant_id, queue_ids; now
-- returns one row a visible job: ord, state (null: between two places, read again), the lease's generation, expiry and
--   whether it has lapsed and is the caller's, the result, and the attempt that the asked generation ended with
-- plan: by index
WITH {clock}
SELECT c.ord,
    CASE
        WHEN s.job_id IS NOT NULL THEN 'running'
        WHEN r.job_id IS NOT NULL THEN 'ready'
        WHEN w.job_id IS NOT NULL THEN 'scheduled'
        WHEN f.job_id IS NOT NULL THEN f.outcome
        WHEN d.job_id IS NOT NULL THEN 'dead'
    END AS state,
    coalesce(s.generation, r.generation, w.generation, d.generation, f.generation) AS latest_generation,
    s.expires_at <= k.at AS lapsed,
    substr(sha256(s.token), 1, 16) = c.token_hash AS is_callers,
    f.payload_hash, f.finished_at, f.late,
    a.token_hash = c.token_hash AS ended_by_caller, a.call_hash, a.outcome, a.led_to, a.next_at, a.reason, a.ended_at
FROM unnest(%(job_ids)s::bigint[], %(generations)s::int[], %(token_hashes)s::bytea[]) WITH ORDINALITY
    AS c(job_id, generation, token_hash, ord)
JOIN queue_job l ON l.id = c.job_id
CROSS JOIN clock k
LEFT JOIN queue_lease s ON s.job_id = c.job_id
LEFT JOIN queue_readyjob r ON r.job_id = c.job_id
LEFT JOIN queue_scheduledjob w ON w.job_id = c.job_id
LEFT JOIN queue_result f ON f.job_id = c.job_id
LEFT JOIN dlq_deadletter d ON d.job_id = c.job_id
LEFT JOIN queue_attempt a ON a.job_id = c.job_id AND a.generation = c.generation
WHERE {in_scope}
