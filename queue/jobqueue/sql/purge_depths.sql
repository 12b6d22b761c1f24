-- purge_depths: forget samples of what waited that are older than a day.
-- params: limit, now
-- returns how many rows were purged.  locks: samples, then rounds, SKIP LOCKED
-- plan: by index
WITH {clock},
    due AS MATERIALIZED (
        SELECT d.tenant_id, d.minute, d.queue_id, d.priority FROM queue_depthminute d
        WHERE d.minute < (SELECT at FROM clock) - interval '25 hours'
        ORDER BY d.minute LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    rounds AS MATERIALIZED (
        SELECT r.minute FROM queue_depthround r
        WHERE r.minute < (SELECT at FROM clock) - interval '25 hours'
        ORDER BY r.minute LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    purged AS (
        DELETE FROM queue_depthminute d USING due o
        WHERE (d.tenant_id, d.minute, d.queue_id, d.priority) = (o.tenant_id, o.minute, o.queue_id, o.priority)
    ),
    purged_rounds AS (DELETE FROM queue_depthround r USING rounds o WHERE r.minute = o.minute)
SELECT (SELECT count(*) FROM due) + (SELECT count(*) FROM rounds)
