-- lane_means: the running mean of a lane's service time, from its latest minutes: new work weighs more.
-- returns how many lanes changed by more than a twentieth.  locks: lane rows in id order, SKIP LOCKED
-- plan: by index
WITH recent AS MATERIALIZED (
        SELECT m.lane_id, sum(m.service_ms)::float8 / sum(m.succeeded + m.failed + m.lease_lost) AS mean_ms
        FROM queue_laneminute m
        WHERE m.minute >= date_trunc('minute', clock_timestamp()) - interval '5 minutes'
        GROUP BY m.lane_id HAVING sum(m.succeeded + m.failed + m.lease_lost) > 0
    ),
    changing AS MATERIALIZED (
        SELECT l.id, r.mean_ms
        FROM queue_lane l JOIN recent r ON r.lane_id = l.id
        WHERE l.mean_ms IS NULL OR abs(l.mean_ms - r.mean_ms) > 0.05 * greatest(l.mean_ms, 1)
        ORDER BY l.id
        FOR UPDATE OF l SKIP LOCKED
    ),
    changed AS (UPDATE queue_lane l SET mean_ms = c.mean_ms FROM changing c WHERE l.id = c.id RETURNING l.id)
SELECT count(*) FROM changed
