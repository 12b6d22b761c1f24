-- job_id_at: about which job id the platform was at an instant: the first whose job was not accepted before it.
-- params: at
-- returns an id; ids follow the instants of acceptance but for what ran at the same time, so callers leave a margin
-- It halves the range of ids some sixty times, each time by one look along the primary key.
-- plan: by index
WITH RECURSIVE ends AS MATERIALIZED (
        SELECT coalesce((SELECT id FROM queue_job ORDER BY id LIMIT 1), 0) AS low,
            coalesce((SELECT id FROM queue_job ORDER BY id DESC LIMIT 1), 0) + 1 AS high
    ),
    halved AS (
        SELECT low, high FROM ends
        UNION ALL
        SELECT CASE WHEN m.is_before THEN m.middle + 1 ELSE h.low END,
            CASE WHEN m.is_before THEN h.high ELSE m.middle END
        FROM halved h CROSS JOIN LATERAL (
            SELECT h.low + (h.high - h.low) / 2 AS middle, coalesce((
                SELECT l.created_at < %(at)s::timestamptz FROM queue_job l
                WHERE l.id >= h.low + (h.high - h.low) / 2 ORDER BY l.id LIMIT 1
            ), false) AS is_before
        ) m
        WHERE h.low < h.high
    )
SELECT low FROM halved WHERE low >= high LIMIT 1
