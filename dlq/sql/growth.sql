-- growth: how many jobs of each queue died lately, and how many usually do in as long a time.
-- params: recent_s, usual_s (how far back "usually" looks), now
-- returns queue_id, recent, usual (a mean over windows as long as the recent one). Read from the ledger by minute, so
-- the dead letters themselves are not counted; what was not folded yet (a second or two) is missing.
WITH clock AS MATERIALIZED (
        SELECT date_trunc('minute', coalesce(%(now)s::timestamptz, clock_timestamp())) + interval '1 minute' AS at
    ),
    counted AS (
        SELECT l.queue_id, k.at,
            sum(m.dead) FILTER (WHERE m.minute >= k.at - %(recent_s)s::int * interval '1 second') AS recent,
            sum(m.dead) FILTER (WHERE m.minute < k.at - %(recent_s)s::int * interval '1 second') AS before
        FROM clock k
        JOIN queue_laneminute m ON m.minute < k.at
            AND m.minute >= k.at - (%(recent_s)s::int + %(usual_s)s::int) * interval '1 second'
        JOIN queue_lane l ON l.id = m.lane_id
        WHERE m.dead > 0
        GROUP BY l.queue_id, k.at
    )
SELECT queue_id, coalesce(recent, 0)::bigint,
    coalesce(before, 0)::float8 * %(recent_s)s::int / %(usual_s)s::int
FROM counted
