-- renew: push live leases' expiry forward, never back and never past the longest run; keep a checkpoint.
-- params: job_ids, generations, token_hashes, lease_seconds, checkpoints, starts (one a call); tenant_id, queue_ids; now
-- returns ord, expires_at, cancel_requested, capped (nothing more can be granted: nothing was changed)
-- no row = not the caller's live lease.  locks: lease rows in id order
-- plan: by index, once
WITH {clock},
    call AS MATERIALIZED (
        SELECT * FROM unnest(
            %(job_ids)s::bigint[], %(generations)s::int[], %(token_hashes)s::bytea[], %(lease_seconds)s::int[],
            %(checkpoints)s::text[], %(starts)s::bool[]
        ) WITH ORDINALITY AS c(job_id, generation, token_hash, lease_s, checkpoint, started, ord)
    ),
    held AS MATERIALIZED (
        SELECT c.ord, c.checkpoint, c.started, s.job_id, s.is_started, s.expires_at, s.max_run_at,
            (SELECT at FROM clock) + coalesce(c.lease_s, s.lease_s) * interval '1 second' AS asked_for
        FROM queue_lease s
        JOIN call c ON c.job_id = s.job_id
        JOIN queue_lane l ON l.id = s.lane_id
        WHERE s.generation = c.generation AND substr(sha256(s.token), 1, 16) = c.token_hash
            AND s.expires_at > (SELECT at FROM clock)
            AND {in_scope}
        ORDER BY s.job_id
        FOR UPDATE OF s
    ),
    judged AS MATERIALIZED (
        SELECT *, least(max_run_at, greatest(expires_at, asked_for)) AS extended_to,
            -- unless this very call says that the job was started
            expires_at = max_run_at AND asked_for > max_run_at AND (is_started OR NOT started) AS capped
        FROM held
    ),
    renewed AS (
        UPDATE queue_lease s SET expires_at = j.extended_to, checkpoint = coalesce(j.checkpoint, s.checkpoint),
            is_started = s.is_started OR j.started
        FROM judged j
        WHERE s.job_id = j.job_id AND NOT j.capped
        RETURNING s.job_id, s.cancel_requested
    )
SELECT j.ord, j.extended_to, coalesce(r.cancel_requested, false), j.capped
FROM judged j LEFT JOIN renewed r USING (job_id)
