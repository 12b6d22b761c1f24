-- lane_recheck: lower the bound of a lane that hides a row (the server's clock was set back).
-- returns how many lanes were lowered.  locks: lane rows in id order, SKIP LOCKED
-- plan: by index
WITH hiding AS MATERIALIZED (
        SELECT l.id, h.position
        FROM queue_lane l
        CROSS JOIN LATERAL (
            SELECT r.position FROM queue_readyjob r
            WHERE r.lane_id = l.id AND r.fresh AND r.position < l.low
            ORDER BY r.position LIMIT 1
        ) h
        ORDER BY l.id
        FOR UPDATE OF l SKIP LOCKED
    ),
    lowered AS (
        UPDATE queue_lane l SET low = h.position FROM hiding h WHERE l.id = h.id RETURNING l.id
    )
SELECT count(*) FROM lowered
