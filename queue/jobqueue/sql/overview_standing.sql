-- overview_standing: this shard's clock and places, and what holds its work back.
-- params: bound (rows of a place that are counted), now
-- returns one row: the clock, seconds by which its clock stands behind an instant that it showed before (null: it does
--   not), seconds that the oldest due job waits for its promotion, that the oldest lapsed lease waits for the reaper
--   (null: nothing waits), ready, scheduled, running, dead (each counted up to the bound), and of each dependency
--   whose breaker is open or half open: its name, ` (`, and how it stands
-- plan: by index
WITH {clock}
SELECT k.at,
    (SELECT extract(epoch FROM h.at - k.at)::float8 FROM (SELECT max(at) AS at FROM queue_horizon) h WHERE h.at > k.at),
    extract(epoch FROM k.at - (SELECT min(s.due_at) FROM queue_scheduledjob s
        WHERE s.due_at <= k.at AND s.budget_queue_id IS NULL))::float8,
    extract(epoch FROM k.at - (SELECT min(s.expires_at) FROM queue_lease s WHERE s.expires_at <= k.at))::float8,
    (SELECT count(*) FROM (SELECT FROM queue_readyjob LIMIT %(bound)s::int) x),
    (SELECT count(*) FROM (SELECT FROM queue_scheduledjob LIMIT %(bound)s::int) x),
    (SELECT count(*) FROM (SELECT FROM queue_lease LIMIT %(bound)s::int) x),
    (SELECT count(*) FROM (SELECT FROM dlq_deadletter LIMIT %(bound)s::int) x),
    ARRAY(SELECT d.name || ' (' || CASE WHEN d.is_held_open THEN 'held open' ELSE d.breaker END
        FROM queue_dependencystate d WHERE d.breaker <> 'closed' OR d.is_held_open ORDER BY d.name LIMIT 20)
FROM clock k
