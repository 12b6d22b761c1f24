-- doctor_work: how long work waits that dispatcher and reaper should have moved, and how much of the hot tables is dead.
-- params: hot (names of the tables whose rows turn over quickly), now
-- returns one row: seconds that the oldest due job waits for its promotion, that the oldest lapsed lease waits for the
--   reaper (null: nothing waits), the hot table with the most dead rows, how many those are, and its live ones
-- locks: none
-- plan: by index
WITH {clock},
    hot AS (
        SELECT relname, n_dead_tup AS dead, n_live_tup AS live
        FROM pg_stat_user_tables
        WHERE relname = ANY (%(hot)s::text[])
        ORDER BY n_dead_tup DESC
        LIMIT 1
    )
SELECT extract(epoch FROM k.at - (SELECT min(s.due_at) FROM queue_scheduledjob s WHERE s.due_at <= k.at))::float8,
    extract(epoch FROM k.at - (SELECT min(s.expires_at) FROM queue_lease s WHERE s.expires_at <= k.at))::float8,
    (SELECT relname FROM hot), (SELECT dead FROM hot), (SELECT live FROM hot)
FROM clock k
