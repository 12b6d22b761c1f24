-- purge_fires: forget fires older than a while; a schedule never returns to an instant that lies behind it.
-- params: limit, keep_s, now
-- returns how many were forgotten.  locks: fire rows, SKIP LOCKED
-- plan: by index
WITH {clock},
    old AS MATERIALIZED (
        SELECT f.id FROM queue_schedulefire f
        WHERE f.fired_at < (SELECT at FROM clock) - %(keep_s)s::int * interval '1 second'
        ORDER BY f.fired_at LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    forgotten AS (DELETE FROM queue_schedulefire f USING old o WHERE f.id = o.id)
SELECT count(*) FROM old
