-- claim_heads: what a claim may take now: from each band's cursor over active lanes.
-- A bounded walk: at most `probes` lanes a band, and no more heads than the claim could use, so that the cost grows
-- with the limit and not with tenants or backlog. Lanes that can start nothing (paused, at a limit, gated by poisons, a
-- dependency that bears no more) are passed over: they would only hide others. Nothing is locked here: of limited tenants
-- `claim_rooms` has the last word, of limited dependencies `dependency_rooms`.
-- params: queue_id, claim_class, part, bands and after (one a band: the walk begins at this tenant; null: where the
--   remembered state says), kinds, tenant_id, busy (tenants to pass over, or null), wanted (jobs),
--   heads and probes (lanes a band with work, and at all), is_costed, now
-- returns one row a lane: lane_id, band, tenant_id, kind, weight, cost_s, served_s, whether running is limited, and its
--   jobs as they stand: job_ids, positions, and how many of them are not fresh (those come first); and the id of its
--   dependency if that is limited
-- plan: by index, once
WITH {clock},
    here AS MATERIALIZED (
        SELECT name FROM queue_policyrow WHERE queue_id = %(queue_id)s::bigint AND NOT is_dispatch_paused
    ),
    kept AS MATERIALIZED (
        SELECT state->'tenants' AS turns FROM queue_schedulerstate
        WHERE queue_id = %(queue_id)s::bigint AND claim_class = %(claim_class)s::bytea AND part = %(part)s::text
        ORDER BY id DESC LIMIT 1
    ),
    walk AS MATERIALIZED (
        SELECT b.band, l.*
        FROM here
        CROSS JOIN (
            SELECT u.band, coalesce(
                %(tenant_id)s::bigint,
                u.after,
                (SELECT (turns->u.band::text->>0)::bigint + (turns->u.band::text->>1 = '0')::int FROM kept),
                0
            ) AS after
            FROM unnest(%(bands)s::smallint[], %(after)s::bigint[]) AS u(band, after)
        ) b
        CROSS JOIN LATERAL (
            SELECT c.*, t.weight, m.is_full
            FROM (
                (SELECT x.* FROM queue_lane x
                 WHERE x.queue_id = %(queue_id)s::bigint AND x.priority = b.band AND x.is_active
                    AND x.tenant_id >= b.after AND x.tenant_id <= coalesce(%(tenant_id)s::bigint, 9223372036854775807)
                 ORDER BY x.tenant_id, x.id LIMIT %(probes)s::int)
                UNION ALL
                (SELECT x.* FROM queue_lane x
                 WHERE x.queue_id = %(queue_id)s::bigint AND x.priority = b.band AND x.is_active
                    AND x.tenant_id < b.after AND %(tenant_id)s::bigint IS NULL
                 ORDER BY x.tenant_id, x.id LIMIT %(probes)s::int)
                LIMIT %(probes)s::int
            ) c
            LEFT JOIN tenants_tenantstate t ON t.tenant_id = c.tenant_id
            CROSS JOIN LATERAL (
                -- Null: no running limit holds here.
                SELECT bool_or(m.max_running <= (SELECT count(*) FROM ({leases_of_limit}) running)) AS is_full
                FROM tenants_limithere m
                WHERE t.limits_running AND m.tenant_id = c.tenant_id AND m.max_running IS NOT NULL
                    AND m.queue IN ('', (SELECT name FROM here)) AND (m.band IS NULL OR m.band = b.band)
                -- A fence: without it the leases are counted twice.
                OFFSET 0
            ) m
            WHERE coalesce(c.kind = ANY(%(kinds)s::text[]), true)
                AND coalesce(c.tenant_id <> ALL(%(busy)s::bigint[]), true)
                AND t.is_paused IS NOT TRUE
                AND {lane_is_open}
                AND (
                    EXISTS (
                        SELECT FROM queue_readyjob r
                        WHERE r.lane_id = c.id AND r.fresh AND r.position >= c.low
                            AND coalesce(r.deadline > (SELECT at FROM clock), true)
                    ) OR EXISTS (
                        SELECT FROM queue_readyjob r
                        WHERE r.lane_id = c.id AND NOT r.fresh
                            AND coalesce(r.deadline > (SELECT at FROM clock), true)
                    )
                )
                AND m.is_full IS NOT TRUE
            LIMIT %(heads)s::int
        ) l
    ),
    lanes AS MATERIALIZED (
        SELECT w.*, count(*) OVER (PARTITION BY w.band) AS broad, coalesce(
            (
                SELECT m.weight FROM tenants_tenantlimit m
                WHERE m.tenant_id = w.tenant_id AND m.weight IS NOT NULL AND m.queue IN ('', (SELECT name FROM here))
                    AND (m.band IS NULL OR m.band = w.band)
                ORDER BY m.band NULLS LAST, m.queue DESC LIMIT 1
            ),
            w.weight, 1
        ) AS share
        FROM walk w
    )
SELECT l.id, l.band, l.tenant_id, l.kind, l.share, coalesce(l.mean_ms, 1000) / 1000.0,
    CASE WHEN %(is_costed)s::bool THEN
        coalesce((SELECT f.served_s FROM queue_tenantservice f
            WHERE f.queue_id = %(queue_id)s::bigint AND f.tenant_id = l.tenant_id), 0)
        + coalesce((SELECT sum(d.moved_s) FROM queue_servicedelta d
            WHERE d.queue_id = %(queue_id)s::bigint AND d.tenant_id = l.tenant_id), 0)
    ELSE 0 END,
    l.is_full IS NOT NULL, h.ids, h.places, h.stale,
    CASE WHEN l.dependency <> '' THEN (
        SELECT d.id FROM queue_dependencystate d
        WHERE d.name = l.dependency AND (d.max_running IS NOT NULL OR d.rate_per_s IS NOT NULL
            OR d.ramp_from IS NOT NULL OR d.breaker <> 'closed')
    ) END
FROM lanes l
CROSS JOIN LATERAL (
    SELECT array_agg(q.job_id) AS ids, array_agg(q.position) AS places,
        (count(*) FILTER (WHERE NOT q.fresh))::int AS stale
    FROM (
        (SELECT r.job_id, r.position, r.fresh FROM queue_readyjob r
         WHERE r.lane_id = l.id AND NOT r.fresh AND coalesce(r.deadline > (SELECT at FROM clock), true)
         ORDER BY r.position, r.job_id LIMIT %(wanted)s::int)
        UNION ALL
        (SELECT r.job_id, r.position, r.fresh FROM queue_readyjob r
         WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
            AND coalesce(r.deadline > (SELECT at FROM clock), true)
         ORDER BY r.position, r.job_id LIMIT %(wanted)s::int)
        -- Each lane as deep as this claim could go there if all its neighbours are met once a round.
        LIMIT least(%(wanted)s::int, 1 + 2 * %(wanted)s::int / l.broad * greatest(1, l.share))
    ) q
) h
WHERE h.ids IS NOT NULL
