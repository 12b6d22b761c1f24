-- slot_horizon: the oldest transaction that still runs in this database: what is missing in a snapshot taken now, a
-- younger one writes.
-- returns its id, and the id that the next transaction gets
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() AS s
