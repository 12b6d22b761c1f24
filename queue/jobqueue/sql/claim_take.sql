-- claim_take: move these tickets from ready to lease under the next generation, charging one attempt each.
-- params: job_ids, queue_id, token, token_id, worker, claim_key, claim_hash, lease_s, prefetch, now
-- returns the leases made; a job that another statement holds is passed over.  locks: ready rows in id order
WITH {clock},
    policy AS MATERIALIZED (
        SELECT p.max_run_s, coalesce(%(lease_s)s::int, p.lease_s) AS lease_s
        FROM queue_policyrow p WHERE p.queue_id = %(queue_id)s::bigint
    ),
    picked AS MATERIALIZED (
        SELECT r.job_id FROM queue_readyjob r
        WHERE r.job_id = ANY(%(job_ids)b::bigint[])
        ORDER BY r.job_id
        FOR UPDATE SKIP LOCKED
    ),
    moved AS (
        DELETE FROM queue_readyjob r USING picked p WHERE r.job_id = p.job_id
        RETURNING r.job_id, {r.kept}, {r.counted}, r.position
    ),
    leased AS (
        INSERT INTO queue_lease (
            job_id, {kept}, attempt, generation, crashes, lapses, releases, reconcile, checkpoint, position, token,
            token_id, worker, claim_key, claim_hash, lease_s, is_started, cancel_requested, claimed_at, expires_at,
            max_run_at
        )
        SELECT m.job_id, {m.kept}, m.attempt + 1, m.generation + 1, m.crashes, m.lapses, m.releases, m.reconcile,
            m.checkpoint, m.position, %(token)b::bytea, %(token_id)s::bigint, %(worker)s::text, %(claim_key)s::text,
            %(claim_hash)s::bytea, p.lease_s, NOT %(prefetch)s::bool, false, c.at,
            c.at + least(p.lease_s, p.max_run_s) * interval '1 second', c.at + p.max_run_s * interval '1 second'
        FROM moved m CROSS JOIN policy p CROSS JOIN clock c
        RETURNING job_id, lane_id, generation, attempt, token, claimed_at, expires_at, max_run_at, deadline,
            reconcile, checkpoint, payload_version, redrive_generation
    ),
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, started)
        SELECT lane_id, min(claimed_at), count(*) FROM leased GROUP BY lane_id
    )
SELECT * FROM leased
