-- lane_sweep: wake lanes that hold work, put those to sleep that held none for a while.
-- params: idle_s
-- returns how many lanes changed.  locks: lane rows in id order, SKIP LOCKED
-- plan: by index
WITH judged AS MATERIALIZED (
        SELECT l.id, l.is_active, EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id) AS holds_work
        FROM queue_lane l
    ),
    changing AS MATERIALIZED (
        SELECT l.id, j.holds_work
        FROM queue_lane l JOIN judged j USING (id)
        WHERE (j.holds_work AND NOT l.is_active)
            OR (j.holds_work AND l.used_at < clock_timestamp() - %(idle_s)s::int * interval '0.5 second')
            OR (NOT j.holds_work AND l.is_active
                AND l.used_at < clock_timestamp() - %(idle_s)s::int * interval '1 second')
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
