-- claim_heads: what a claim may take now: from each band's cursor over its active lanes, heads first.
-- A bounded walk: at most `probes` lanes a band, and no more heads than the claim could use, so that the cost grows
-- with the limit and not with tenants or backlog. Gated lanes (paused, a limit that another claim holds, poisons, a dependency
-- that bears no more) are passed over.
-- params: queue_id, claim_class, part, bands and after (one a band: the walk begins at this tenant; null: where the
--   remembered state says), kinds, tenant_id, wanted (jobs),
--   heads and probes (lanes a band with work, and at all), is_costed, now
-- returns one row a job: lane_id, band, tenant_id, kind, limit ids and what each leaves, job_id, position, fresh,
--   weight, cost_s, served_s, and the id of its dependency if that is limited: `dependency_rooms` has the last word
WITH {clock},
    remembered AS MATERIALIZED (
        SELECT state->'tenants' AS turns FROM queue_schedulerstate
        WHERE queue_id = %(queue_id)s::bigint AND claim_class = %(claim_class)s::bytea AND part = %(part)s::text
        ORDER BY id DESC LIMIT 1
    ),
    cursors AS MATERIALIZED (
        SELECT b.band, coalesce(
            b.after,
            (SELECT (turns->b.band::text->>0)::bigint + (turns->b.band::text->>1 = '0')::int FROM remembered),
            0
        ) AS after
        FROM unnest(%(bands)s::smallint[], %(after)s::bigint[]) AS b(band, after)
        JOIN queue_policyrow p ON p.queue_id = %(queue_id)s::bigint AND NOT p.is_dispatch_paused
    ),
    walk AS MATERIALIZED (
        SELECT b.band, l.*
        FROM cursors b
        CROSS JOIN LATERAL (
            SELECT c.*, h.job_id AS head_id
            FROM (
                SELECT * FROM (
                    (SELECT x.id, x.tenant_id, x.kind, x.low, x.mean_ms, x.dependency, x.gated_until, false AS wrapped
                     FROM queue_lane x
                     WHERE x.queue_id = %(queue_id)s::bigint AND x.priority = b.band AND x.is_active
                        AND x.tenant_id >= b.after
                     ORDER BY x.tenant_id, x.id LIMIT %(probes)s::int)
                    UNION ALL
                    (SELECT x.id, x.tenant_id, x.kind, x.low, x.mean_ms, x.dependency, x.gated_until, true
                     FROM queue_lane x
                     WHERE x.queue_id = %(queue_id)s::bigint AND x.priority = b.band AND x.is_active
                        AND x.tenant_id < b.after
                     ORDER BY x.tenant_id, x.id LIMIT %(probes)s::int)
                ) around
                LIMIT %(probes)s::int
            ) c
            LEFT JOIN tenants_tenantstate t ON t.tenant_id = c.tenant_id
            CROSS JOIN LATERAL (
                (SELECT r.job_id FROM queue_readyjob r
                 WHERE r.lane_id = c.id AND NOT r.fresh AND (r.deadline IS NULL OR r.deadline > (SELECT at FROM clock))
                 ORDER BY r.position, r.job_id LIMIT 1)
                UNION ALL
                (SELECT r.job_id FROM queue_readyjob r
                 WHERE r.lane_id = c.id AND r.fresh AND r.position >= c.low
                    AND (r.deadline IS NULL OR r.deadline > (SELECT at FROM clock))
                 ORDER BY r.position, r.job_id LIMIT 1)
                LIMIT 1
            ) h
            WHERE (%(kinds)s::text[] IS NULL OR c.kind = ANY(%(kinds)s::text[]))
                AND (%(tenant_id)s::bigint IS NULL OR c.tenant_id = %(tenant_id)s::bigint)
                AND NOT coalesce(t.is_paused, false)
                AND {lane_is_open}
                -- A limit here that another claim holds or that is full: the tenant would only hide others.
                AND NOT (coalesce(t.limits_running, false) AND EXISTS (
                    SELECT FROM tenants_tenantlimit m
                    WHERE m.tenant_id = c.tenant_id AND m.max_running IS NOT NULL
                        AND m.queue IN ('', (SELECT name FROM queue_policyrow WHERE queue_id = %(queue_id)s::bigint))
                        AND (m.band IS NULL OR m.band = b.band)
                        AND (c.tenant_id <> ALL(current_setting('jobsplatform.held_tenants')::bigint[])
                            OR m.max_running <= (
                                SELECT count(*) FROM queue_lane k JOIN queue_lease s ON s.lane_id = k.id
                                WHERE k.tenant_id = m.tenant_id AND (m.queue = '' OR k.queue_id = %(queue_id)s::bigint)
                                    AND (m.band IS NULL OR k.priority = m.band)
                            ))
                ))
            LIMIT %(heads)s::int
        ) l
    ),
    breadth AS MATERIALIZED (SELECT band, count(*)::int AS lanes FROM walk GROUP BY band),
    rooms AS MATERIALIZED (
        SELECT w.tenant_id, w.band, array_agg(m.id ORDER BY m.id) AS limits, array_agg(greatest(0, m.max_running - (
            SELECT count(*) FROM queue_lane k JOIN queue_lease s ON s.lane_id = k.id
            WHERE k.tenant_id = m.tenant_id AND (m.queue = '' OR k.queue_id = %(queue_id)s::bigint)
                AND (m.band IS NULL OR k.priority = m.band)
        ))::int ORDER BY m.id) AS lefts
        FROM (SELECT DISTINCT tenant_id, band FROM walk) w
        JOIN tenants_tenantlimit m ON m.tenant_id = w.tenant_id AND m.max_running IS NOT NULL
            AND m.queue IN ('', (SELECT name FROM queue_policyrow WHERE queue_id = %(queue_id)s::bigint))
            AND (m.band IS NULL OR m.band = w.band)
        GROUP BY w.tenant_id, w.band
    ),
    weights AS MATERIALIZED (
        SELECT DISTINCT ON (w.tenant_id, w.band) w.tenant_id, w.band, m.weight
        FROM (SELECT DISTINCT tenant_id, band FROM walk) w
        JOIN tenants_tenantlimit m ON m.tenant_id = w.tenant_id AND m.weight IS NOT NULL
            AND m.queue IN ('', (SELECT name FROM queue_policyrow WHERE queue_id = %(queue_id)s::bigint))
            AND (m.band IS NULL OR m.band = w.band)
        ORDER BY w.tenant_id, w.band, m.band NULLS LAST, m.queue DESC
    ),
    served AS MATERIALIZED (
        SELECT w.tenant_id,
            coalesce((SELECT f.served_s FROM queue_tenantservice f
                WHERE f.queue_id = %(queue_id)s::bigint AND f.tenant_id = w.tenant_id), 0)
            + coalesce((SELECT sum(d.moved_s) FROM queue_servicedelta d
                WHERE d.queue_id = %(queue_id)s::bigint AND d.tenant_id = w.tenant_id), 0) AS served_s
        FROM (SELECT DISTINCT tenant_id FROM walk WHERE %(is_costed)s::bool) w
    )
SELECT w.id, w.band, w.tenant_id, w.kind, coalesce(m.limits, '{}'), coalesce(m.lefts, '{}'), h.job_id, h.position,
    h.fresh, coalesce(g.weight, t.weight, 1), coalesce(w.mean_ms, 1000) / 1000.0, coalesce(v.served_s, 0),
    CASE WHEN w.dependency <> '' THEN (
        SELECT d.id FROM queue_dependencystate d
        WHERE d.name = w.dependency AND (d.max_running IS NOT NULL OR d.rate_per_s IS NOT NULL
            OR d.ramp_from IS NOT NULL OR d.breaker <> 'closed')
    ) END
FROM walk w
JOIN breadth b USING (band)
LEFT JOIN rooms m ON m.tenant_id = w.tenant_id AND m.band = w.band
LEFT JOIN weights g ON g.tenant_id = w.tenant_id AND g.band = w.band
LEFT JOIN served v ON v.tenant_id = w.tenant_id
LEFT JOIN tenants_tenantstate t ON t.tenant_id = w.tenant_id
CROSS JOIN LATERAL (
    (SELECT r.job_id, r.position, r.fresh FROM queue_readyjob r
     WHERE r.lane_id = w.id AND NOT r.fresh AND (r.deadline IS NULL OR r.deadline > (SELECT at FROM clock))
     ORDER BY r.position, r.job_id LIMIT %(wanted)s::int)
    UNION ALL
    (SELECT r.job_id, r.position, r.fresh FROM queue_readyjob r
     WHERE r.lane_id = w.id AND r.fresh AND r.position >= w.low
        AND (r.deadline IS NULL OR r.deadline > (SELECT at FROM clock))
     ORDER BY r.position, r.job_id LIMIT %(wanted)s::int)
    -- Each lane as deep as this claim could go there if all its neighbours are met once a round.
    LIMIT least(%(wanted)s::int, 1 + 2 * %(wanted)s::int / b.lanes * greatest(1, coalesce(g.weight, t.weight, 1)))
) h
