-- fair_share: what a tenant that waits was entitled to and has received, by queue and band.
-- Only minutes are looked at in which it had work waiting all the time: those after the one in which its oldest waiting
-- job became ready. In such a minute it is entitled to its weight's part of all starts (and of all service time) of the
-- band, among the tenants that started something there. Other tenants' figures stay in here: only the tenant's own
-- part comes out.
-- params: tenant_id, window_s (no further back), lanes (of a queue and band that are looked at), now
-- returns queue_id, priority, seconds watched, starts entitled and received, service in ms entitled and received
-- plan: by index
WITH {clock},
    mine AS MATERIALIZED (
        SELECT l.queue_id, l.priority, min(h.position) AS oldest
        FROM queue_lane l CROSS JOIN LATERAL (
            (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh
             ORDER BY r.position, r.job_id LIMIT 1)
            UNION ALL
            (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
             ORDER BY r.position, r.job_id LIMIT 1)
        ) h
        WHERE l.tenant_id = %(tenant_id)s::bigint
        GROUP BY l.queue_id, l.priority
    ),
    watched AS MATERIALIZED (
        SELECT m.queue_id, m.priority, p.name,
            date_trunc('minute', greatest(m.oldest, k.at - make_interval(secs => %(window_s)s::float8)))
                + interval '1 minute' AS since,
            date_trunc('minute', k.at) AS until
        FROM mine m CROSS JOIN clock k LEFT JOIN queue_policyrow p ON p.queue_id = m.queue_id
    ),
    shares AS MATERIALIZED (
        SELECT w.queue_id, w.priority, w.name, w.since, w.until, c.minute, n.tenant_id,
            sum(c.started) AS started, sum(c.service_ms) AS service_ms
        FROM watched w
        CROSS JOIN LATERAL (
            SELECT l.id, l.tenant_id FROM queue_lane l
            WHERE l.queue_id = w.queue_id AND l.priority = w.priority
            ORDER BY (l.tenant_id = %(tenant_id)s::bigint) DESC, l.tenant_id, l.id
            LIMIT %(lanes)s::int
        ) n
        JOIN queue_laneminute c ON c.lane_id = n.id AND c.minute >= w.since AND c.minute < w.until
        GROUP BY 1, 2, 3, 4, 5, 6, 7
    ),
    weighed AS MATERIALIZED (
        SELECT s.*, coalesce(
            (
                SELECT m.weight FROM tenants_tenantlimit m
                WHERE m.tenant_id = s.tenant_id AND m.weight IS NOT NULL AND m.queue IN ('', s.name)
                    AND (m.band IS NULL OR m.band = s.priority)
                ORDER BY m.band NULLS LAST, m.queue DESC LIMIT 1
            ),
            t.weight, 1
        ) AS weight
        FROM shares s LEFT JOIN tenants_tenantstate t ON t.tenant_id = s.tenant_id
    ),
    minutes AS (
        SELECT queue_id, priority, minute, sum(started) AS started, sum(service_ms) AS service_ms,
            sum(weight) FILTER (WHERE started > 0 OR tenant_id = %(tenant_id)s::bigint) AS weights,
            max(weight) FILTER (WHERE tenant_id = %(tenant_id)s::bigint) AS weight,
            coalesce(sum(started) FILTER (WHERE tenant_id = %(tenant_id)s::bigint), 0) AS own_started,
            coalesce(sum(service_ms) FILTER (WHERE tenant_id = %(tenant_id)s::bigint), 0) AS own_ms
        FROM weighed GROUP BY 1, 2, 3
    )
SELECT w.queue_id, w.priority, extract(epoch FROM w.until - w.since)::float8,
    coalesce(sum(m.started * coalesce(m.weight, o.weight) / (m.weights + p.missing)), 0)::float8,
    coalesce(sum(m.own_started), 0)::bigint,
    coalesce(sum(m.service_ms * coalesce(m.weight, o.weight) / (m.weights + p.missing)), 0)::float8,
    coalesce(sum(m.own_ms), 0)::bigint
FROM watched w
LEFT JOIN minutes m ON m.queue_id = w.queue_id AND m.priority = w.priority
CROSS JOIN LATERAL (
    -- The tenant's own weight, for minutes in which it started nothing.
    SELECT coalesce(
        (
            SELECT x.weight FROM tenants_tenantlimit x
            WHERE x.tenant_id = %(tenant_id)s::bigint AND x.weight IS NOT NULL AND x.queue IN ('', w.name)
                AND (x.band IS NULL OR x.band = w.priority)
            ORDER BY x.band NULLS LAST, x.queue DESC LIMIT 1
        ),
        (SELECT t.weight FROM tenants_tenantstate t WHERE t.tenant_id = %(tenant_id)s::bigint), 1
    ) AS weight
) o
CROSS JOIN LATERAL (SELECT CASE WHEN m.weight IS NULL THEN o.weight ELSE 0 END AS missing) p
WHERE w.until > w.since
GROUP BY w.queue_id, w.priority, w.since, w.until
ORDER BY w.queue_id, w.priority
