-- purge_minutes: forget ledger minutes older than a week.
-- params: limit, now
-- returns how many rows were purged.  locks: minute rows, SKIP LOCKED
-- plan: by index
WITH {clock},
    due AS MATERIALIZED (
        SELECT m.lane_id, m.minute FROM queue_laneminute m
        WHERE m.minute < (SELECT at FROM clock) - interval '7 days'
        ORDER BY m.minute
        LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    purged AS (DELETE FROM queue_laneminute m USING due d WHERE m.lane_id = d.lane_id AND m.minute = d.minute)
SELECT count(*) FROM due
