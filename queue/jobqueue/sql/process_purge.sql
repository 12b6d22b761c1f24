-- process_purge: forget processes that have been silent for long.
-- database: control
-- params: limit, kept_s, now
-- returns how many.  locks: their rows (SKIP LOCKED)
WITH gone AS (
        DELETE FROM queue_process p
        USING (
            SELECT o.id FROM queue_process o
            WHERE o.beat_at < (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
                - %(kept_s)s::float8 * interval '1 second'
            ORDER BY o.id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
        ) o
        WHERE p.id = o.id
        RETURNING p.id
    )
SELECT count(*) FROM gone
