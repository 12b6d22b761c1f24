-- claim_repeat: the live leases that an earlier claim with this key made.
-- params: claim_key, token_id, queue_ids, now
-- returns claim_hash and what a claim returns
-- plan: by index
WITH {clock}
SELECT s.claim_hash, s.job_id, s.lane_id, s.generation, s.attempt, s.token, s.claimed_at, s.expires_at, s.max_run_at,
    s.deadline, s.reconcile, s.checkpoint, s.payload_version, s.redrive_generation, s.crashes
FROM queue_lease s JOIN queue_lane l ON l.id = s.lane_id
WHERE s.claim_key = %(claim_key)s::text AND s.token_id IS NOT DISTINCT FROM %(token_id)s::bigint
    AND l.queue_id = ANY(%(queue_ids)s::bigint[]) AND s.expires_at > (SELECT at FROM clock)
ORDER BY s.job_id
