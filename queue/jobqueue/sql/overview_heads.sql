-- overview_heads: who waits longest in each band, for the operators' first page.
-- params: lanes_max (active lanes that are looked at), tenants_max (a band), now
-- returns a row a queue, band and tenant, at most `tenants_max` a band, who waits longest first: queue_id, priority,
--   tenant_id, seconds since its oldest ready job became ready, whether something holds it back (a pause, a breaker, a
--   gate), whether it has limits of running jobs; and in each row whether there were more lanes
-- plan: by index
WITH {clock},
    looked AS MATERIALIZED (
        SELECT l.id, l.queue_id, l.priority, l.tenant_id, l.low, l.dependency, l.gated_until
        FROM queue_lane l WHERE l.is_active ORDER BY l.queue_id, l.priority, l.tenant_id, l.id
        LIMIT %(lanes_max)s::int + 1
    ),
    heads AS MATERIALIZED (
        SELECT n.queue_id, n.priority, n.tenant_id, h.position,
            (n.gated_until > k.at) IS TRUE
                OR (n.dependency <> '' AND EXISTS (
                    SELECT FROM queue_dependencystate d
                    WHERE d.name = n.dependency AND (d.breaker = 'open' OR d.is_held_open)
                )) AS is_held
        FROM (SELECT * FROM looked LIMIT %(lanes_max)s::int) n
        CROSS JOIN clock k
        CROSS JOIN LATERAL (
            SELECT min(x.position) AS position FROM (
                (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND NOT r.fresh
                 ORDER BY r.position, r.job_id LIMIT 1)
                UNION ALL
                (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND r.fresh AND r.position >= n.low
                 ORDER BY r.position, r.job_id LIMIT 1)
            ) x
        ) h
        WHERE h.position IS NOT NULL
    ),
    ranked AS (
        SELECT h.queue_id, h.priority, h.tenant_id, h.is_held, min(h.position) AS position,
            row_number() OVER (PARTITION BY h.queue_id, h.priority ORDER BY h.is_held, min(h.position)) AS place
        FROM heads h
        GROUP BY h.queue_id, h.priority, h.tenant_id, h.is_held
    )
SELECT r.queue_id, r.priority, r.tenant_id, extract(epoch FROM k.at - r.position)::float8,
    r.is_held OR coalesce(p.is_dispatch_paused, false) OR coalesce(t.is_paused, false),
    coalesce(t.limits_running, false),
    (SELECT count(*) FROM looked) > %(lanes_max)s::int
FROM ranked r
CROSS JOIN clock k
LEFT JOIN queue_policyrow p ON p.queue_id = r.queue_id
LEFT JOIN tenants_tenantstate t ON t.tenant_id = r.tenant_id
WHERE r.place <= %(tenants_max)s::int
ORDER BY r.position
