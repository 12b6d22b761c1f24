-- process_drain: ask living workers to take no more jobs and to end when they are done. Asking again changes nothing.
-- database: control
-- params: kind, key (null: any), name (null: any), actor, silent_s, now
-- returns key and name of each that was asked now.  locks: their rows, by id
WITH asked AS MATERIALIZED (
        SELECT p.id, k.at
        FROM queue_process p
        CROSS JOIN (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at) k
        WHERE p.kind = %(kind)s::text AND p.ended_at IS NULL AND p.drain_asked_at IS NULL
            AND p.beat_at > k.at - %(silent_s)s::float8 * interval '1 second'
            AND (%(key)s::text IS NULL OR p.key = %(key)s::text)
            AND (%(name)s::text IS NULL OR p.name = %(name)s::text)
        ORDER BY p.id
        FOR UPDATE OF p
    )
UPDATE queue_process p SET drain_asked_at = a.at, drain_asked_by = %(actor)s::text
FROM asked a WHERE p.id = a.id
RETURNING p.key, p.name
