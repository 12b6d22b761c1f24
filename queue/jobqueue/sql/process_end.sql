-- process_end: a process says that it ends.
-- database: control
-- params: key, now
-- returns nothing.  locks: its own row
UPDATE queue_process SET ended_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE key = %(key)s::text AND ended_at IS NULL
