-- lane_low: raise the lower bound of each lane's scan as far as is safe.
-- Safe: a horizon sample is (clock, its own transaction id), the clock read first. Every transaction takes its id before
-- it reads the clock for a position; so once all transactions below a sample's id have ended, no row with an older
-- position than the sample's clock can still appear.
-- returns how many lanes were raised.  locks: lane rows in id order, SKIP LOCKED
-- plan: by index
WITH sampled AS (
        INSERT INTO queue_horizon (at, next_xid)
        VALUES (statement_timestamp(), pg_current_xact_id()::text::bigint)
        ON CONFLICT DO NOTHING
    ),
    safe AS MATERIALIZED (
        SELECT max(at) AS at FROM queue_horizon
        WHERE next_xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    ),
    trimmed AS (DELETE FROM queue_horizon h USING safe s WHERE h.at < s.at),
    bounds AS MATERIALIZED (
        SELECT l.id, least(s.at, coalesce((
            SELECT r.position FROM queue_readyjob r
            WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low
            ORDER BY r.position LIMIT 1
        ), s.at)) AS low
        FROM queue_lane l CROSS JOIN safe s
        WHERE l.is_active AND s.at IS NOT NULL
    ),
    raising AS MATERIALIZED (
        SELECT l.id, b.low FROM queue_lane l JOIN bounds b USING (id)
        WHERE l.low < b.low - interval '1 second'
        ORDER BY l.id
        FOR UPDATE OF l SKIP LOCKED
    ),
    raised AS (
        UPDATE queue_lane l SET low = r.low FROM raising r WHERE l.id = r.id RETURNING l.id
    )
SELECT count(*) FROM raised
