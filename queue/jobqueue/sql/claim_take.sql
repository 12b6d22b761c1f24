-- claim_take: move these tickets from ready to lease under the next generation, charging one attempt each.
-- params: job_ids, chosen (why), lent (the word for `lent_ids`), charges_ms and
--   moves_s (one a job; null: costs are not counted), token, token_id, worker, claim_key, claim_hash, lease_s, prefetch,
--   now; queue_id, claim_class, part, policy_version, state (JSON text: the scheduler's after these starts, a row more
--   and never an update in place)
-- returns one row of the leases made, arrays with one element a job (null: none was made); a job that another statement
-- holds is passed over.  locks: ready rows in id order
-- plan: by index, once
WITH {clock},
    policy AS MATERIALIZED (
        SELECT p.max_run_s, coalesce(%(lease_s)s::int, p.lease_s) AS lease_s
        FROM queue_policyrow p WHERE p.queue_id = %(queue_id)s::bigint
    ),
    picked AS MATERIALIZED (
        SELECT r.job_id, r.ctid FROM queue_readyjob r
        WHERE r.job_id = ANY(%(job_ids)s::bigint[])
        ORDER BY r.job_id
        FOR UPDATE SKIP LOCKED
    ),
    moved AS (
        DELETE FROM queue_readyjob r USING picked p WHERE r.ctid = p.ctid
        RETURNING r.job_id, {r.kept}, {r.counted}, r.position, CASE WHEN %(moves_s)s::float8[] IS NOT NULL
            THEN array_position(%(job_ids)s::bigint[], r.job_id) END AS place
    ),
    leased AS (
        INSERT INTO queue_lease (
            job_id, {kept}, attempt, generation, crashes, lapses, releases, reconcile, checkpoint, position, token,
            token_id, worker, claim_key, claim_hash, lease_s, is_started, cancel_requested, claimed_at, expires_at,
            max_run_at, policy_version, chosen, charged_ms
        )
        SELECT m.job_id, {m.kept}, m.attempt + 1, m.generation + 1, m.crashes, m.lapses, m.releases, m.reconcile,
            m.checkpoint, m.position, %(token)s::bytea, %(token_id)s::bigint, %(worker)s::text, %(claim_key)s::text,
            %(claim_hash)s::bytea, p.lease_s, NOT %(prefetch)s::bool, false, c.at,
            c.at + least(p.lease_s, p.max_run_s) * interval '1 second', c.at + p.max_run_s * interval '1 second',
            %(policy_version)s::bigint,
            CASE WHEN m.job_id = ANY(%(lent_ids)s::bigint[]) THEN %(lent)s::text ELSE %(chosen)s::text END,
            (%(charges_ms)s::float8[])[m.place]
        FROM moved m CROSS JOIN policy p CROSS JOIN clock c
        RETURNING job_id, lane_id, generation, attempt, claimed_at, expires_at, max_run_at, deadline,
            reconcile, checkpoint, payload_version, redrive_generation, crashes
    ),
    charged AS (
        INSERT INTO queue_servicedelta (queue_id, tenant_id, moved_s)
        SELECT %(queue_id)s::bigint, l.tenant_id, sum((%(moves_s)s::float8[])[m.place])
        FROM moved m JOIN queue_lane l ON l.id = m.lane_id
        WHERE m.place IS NOT NULL
        GROUP BY l.tenant_id
    ),
    remembered AS (
        INSERT INTO queue_schedulerstate (queue_id, claim_class, part, policy_version, state, at)
        SELECT %(queue_id)s::bigint, %(claim_class)s::bytea, %(part)s::text, %(policy_version)s::bigint,
            %(state)s::jsonb, at
        FROM clock
    ),
    ledger AS (
        INSERT INTO queue_lanedelta (lane_id, at, started, firsts)
        SELECT lane_id, min(claimed_at), count(*), count(*) FILTER (WHERE attempt = 1) FROM leased GROUP BY lane_id
        RETURNING lane_id, at, started
    ),
    calls AS (
        SELECT lane_id, at, started, 0 AS succeeded, 0 AS failed, 0 AS overloaded, NULL::timestamptz AS overloaded_from
        FROM ledger
    ),
    {called},
    probing AS (
        -- The one start of a half-open breaker; its row is held since `dependency_hold`.
        UPDATE queue_dependencystate d SET probe_job_id = s.job_id, probe_generation = s.generation
        FROM calls c JOIN queue_lane l ON l.id = c.lane_id AND l.dependency <> '' JOIN leased s ON s.lane_id = l.id
        WHERE d.name = l.dependency AND d.breaker = 'half_open' AND d.probe_job_id IS NULL
    )
SELECT array_agg(job_id), array_agg(lane_id), array_agg(generation), array_agg(attempt), min(claimed_at),
    min(expires_at), min(max_run_at), %(token)s::bytea, array_agg(deadline), array_agg(reconcile), array_agg(checkpoint),
    array_agg(payload_version), array_agg(redrive_generation), array_agg(crashes)
FROM leased
