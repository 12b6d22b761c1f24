-- process_beat: a process says that it lives, and hears whether it should end.
-- database: control
-- params: key, kind, name, version, queues (null: all), slots, held, now
-- returns one row: whether somebody asked it to drain.  locks: its own row
INSERT INTO queue_process AS p (key, kind, name, version, queues, slots, held, started_at, beat_at)
SELECT %(key)s::text, %(kind)s::text, %(name)s::text, %(version)s::text, %(queues)s::text[], %(slots)s::int,
    %(held)s::int, k.at, k.at
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at) k
ON CONFLICT (key) DO UPDATE SET beat_at = excluded.beat_at, held = excluded.held
RETURNING p.drain_asked_at IS NOT NULL
