-- sample_depths: count what is ready in the next lanes of a round over all that hold something, and since when; a round
-- begins once a minute at most, and goes on where the last call left it. Whoever has no row of a round that is over had
-- nothing ready. One that nobody went on with for five minutes is given up for a new one.
-- params: limit (lanes), bound (jobs of a lane that are counted), now
-- returns how many lanes were counted.  locks: the newest round (SKIP LOCKED: another is at it), then its minutes in key
--   order
-- plan: by index
WITH RECURSIVE {clock},
    latest AS MATERIALIZED (
        SELECT r.minute, r.lane_id, r.is_over, r.looked_at FROM queue_depthround r
        WHERE r.minute = (SELECT max(m.minute) FROM queue_depthround m)
        FOR UPDATE SKIP LOCKED
    ),
    turn AS MATERIALIZED (
        SELECT date_trunc('minute', k.at) AS minute, 0::bigint AS lane_id, true AS is_new FROM clock k
        WHERE NOT EXISTS (SELECT FROM queue_depthround) OR EXISTS (
            SELECT FROM latest l
            WHERE l.minute < date_trunc('minute', k.at)
                AND (l.is_over OR l.looked_at < k.at - interval '5 minutes')
        )
        UNION ALL
        -- However many dispatchers there are, they go on at the pace of one.
        SELECT l.minute, l.lane_id, false FROM latest l CROSS JOIN clock k
        WHERE NOT l.is_over AND l.looked_at BETWEEN k.at - interval '5 minutes' AND k.at - interval '4 seconds'
    ),
    held AS (
        SELECT 1 AS place, (
            SELECT r.lane_id FROM queue_readyjob r WHERE r.lane_id > t.lane_id ORDER BY r.lane_id LIMIT 1
        ) AS lane_id FROM turn t
        UNION ALL
        SELECT h.place + 1, (
            SELECT r.lane_id FROM queue_readyjob r WHERE r.lane_id > h.lane_id ORDER BY r.lane_id LIMIT 1
        ) FROM held h WHERE h.lane_id IS NOT NULL AND h.place < %(limit)s::int
    ),
    walked AS MATERIALIZED (SELECT h.lane_id FROM held h WHERE h.lane_id IS NOT NULL),
    edge AS MATERIALIZED (
        SELECT max(w.lane_id) AS lane_id, count(*) < %(limit)s::int AS is_over FROM walked w
    ),
    begun AS (
        INSERT INTO queue_depthround (minute, lane_id, is_over, looked_at)
        SELECT t.minute, coalesce(e.lane_id, 0), e.is_over, k.at
        FROM turn t CROSS JOIN edge e CROSS JOIN clock k WHERE t.is_new
        ON CONFLICT (minute) DO NOTHING
        RETURNING minute
    ),
    gone_on AS (
        UPDATE queue_depthround r SET lane_id = coalesce(e.lane_id, r.lane_id), is_over = e.is_over, looked_at = k.at
        FROM turn t CROSS JOIN edge e CROSS JOIN clock k
        WHERE NOT t.is_new AND r.minute = t.minute
        RETURNING r.minute
    ),
    kept AS MATERIALIZED (SELECT minute FROM begun UNION ALL SELECT minute FROM gone_on),
    counted AS MATERIALIZED (
        SELECT l.tenant_id, l.queue_id, l.priority, least(c.ready, %(bound)s::int) AS ready, c.since,
            c.ready >= %(bound)s::int AS is_capped
        FROM walked w
        JOIN queue_lane l ON l.id = w.lane_id
        CROSS JOIN LATERAL (
            SELECT count(*) AS ready, min(x.position) AS since FROM (
                (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh
                 ORDER BY r.position, r.job_id LIMIT %(bound)s::int)
                UNION ALL
                (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
                 ORDER BY r.position, r.job_id LIMIT %(bound)s::int)
            ) x
        ) c
        WHERE c.ready > 0
    ),
    summed AS MATERIALIZED (  -- of each tenant, and of all together as tenant 0
        SELECT coalesce(c.tenant_id, 0) AS tenant_id, c.queue_id, c.priority, sum(c.ready)::bigint AS ready,
            min(c.since) AS since, bool_or(c.is_capped) AS is_capped
        FROM counted c
        GROUP BY GROUPING SETS ((c.tenant_id, c.queue_id, c.priority), (c.queue_id, c.priority))
    ),
    sampled AS (
        INSERT INTO queue_depthminute AS d (tenant_id, minute, queue_id, priority, ready, age_s, is_capped)
        SELECT s.tenant_id, o.minute, s.queue_id, s.priority, s.ready,
            greatest(0, extract(epoch FROM k.at - s.since)), s.is_capped
        FROM summed s CROSS JOIN kept o CROSS JOIN clock k
        ORDER BY s.tenant_id, s.queue_id, s.priority
        ON CONFLICT (tenant_id, minute, queue_id, priority) DO UPDATE SET
            ready = d.ready + excluded.ready, age_s = greatest(d.age_s, excluded.age_s),
            is_capped = d.is_capped OR excluded.is_capped
    )
SELECT count(*) FROM counted c WHERE EXISTS (SELECT FROM kept)
