-- claim_found: the leases of a claim whose commit nobody confirmed, if it took effect: its tokens are nobody else's.
-- params: job_ids, tokens
-- returns what a claim returns, one row a lease
-- plan: by index, once
SELECT s.job_id, s.lane_id, s.generation, s.attempt, s.token, s.claimed_at, s.expires_at, s.max_run_at, s.deadline,
    s.reconcile, s.checkpoint, s.payload_version, s.redrive_generation, s.crashes
FROM unnest(%(job_ids)s::bigint[]) AS w(job_id)
JOIN queue_lease s ON s.job_id = w.job_id AND s.token = ANY(%(tokens)s::bytea[])
