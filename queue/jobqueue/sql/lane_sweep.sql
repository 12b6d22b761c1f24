-- lane_sweep: wake lanes that hold work that may start, put those to sleep that held none for a while, or that a breaker
-- or poisons hold back.
-- Only lanes that are active or hold work are looked at: one look into the index of ready jobs for each that holds some.
-- params: idle_s
-- returns how many lanes changed.  locks: lane rows in id order, SKIP LOCKED
-- plan: by index
WITH RECURSIVE held AS (
        (SELECT r.lane_id FROM queue_readyjob r ORDER BY r.lane_id LIMIT 1)
        UNION ALL
        SELECT (SELECT r.lane_id FROM queue_readyjob r WHERE r.lane_id > h.lane_id ORDER BY r.lane_id LIMIT 1)
        FROM held h WHERE h.lane_id IS NOT NULL
    ),
    looked AS MATERIALIZED (
        SELECT h.lane_id AS id, true AS has_rows FROM held h WHERE h.lane_id IS NOT NULL
        UNION ALL
        SELECT l.id, false FROM queue_lane l
        WHERE l.is_active AND NOT EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id)
    ),
    judged AS MATERIALIZED (
        SELECT l.id, g.is_gated, NOT g.is_gated AND k.has_rows AS holds_work
        FROM looked k
        JOIN queue_lane l ON l.id = k.id
        CROSS JOIN LATERAL (
            SELECT coalesce(l.gated_until > clock_timestamp(), false) OR l.dependency <> '' AND EXISTS (
                SELECT FROM queue_dependencystate d
                WHERE d.name = l.dependency AND (d.breaker = 'open' OR d.is_held_open)
            ) AS is_gated
        ) g
    ),
    changing AS MATERIALIZED (
        SELECT l.id, j.holds_work
        FROM judged j JOIN queue_lane l ON l.id = j.id
        WHERE (j.holds_work AND NOT l.is_active)
            OR (j.holds_work AND l.used_at < clock_timestamp() - %(idle_s)s::int * interval '0.5 second')
            OR (NOT j.holds_work AND l.is_active
                AND (j.is_gated OR l.used_at < clock_timestamp() - %(idle_s)s::int * interval '1 second'))
        ORDER BY l.id
        FOR UPDATE OF l SKIP LOCKED
    ),
    changed AS (
        UPDATE queue_lane l
        SET is_active = c.holds_work, used_at = CASE WHEN c.holds_work THEN clock_timestamp() ELSE l.used_at END
        FROM changing c WHERE l.id = c.id
        RETURNING l.id
    )
SELECT count(*) FROM changed
