-- overview_minutes: what was started and how it ended, by minute and band, from the folded ledger.
-- params: minutes (how far back), rows_max (rows of the ledger that are read, newest first), now
-- returns minute, queue_id, priority, started, succeeded, failed, lease_lost, dead; what was not folded yet (a second or
--   two) is missing, and when `rows_max` is reached so are the oldest minutes
WITH {clock},
    read AS MATERIALIZED (
        SELECT m.lane_id, m.minute, m.started, m.succeeded, m.failed, m.lease_lost, m.dead
        FROM queue_laneminute m
        WHERE m.minute > (SELECT at FROM clock) - %(minutes)s::int * interval '1 minute'
        ORDER BY m.minute DESC
        LIMIT %(rows_max)s::int
    )
SELECT r.minute, l.queue_id, l.priority, sum(r.started)::bigint, sum(r.succeeded)::bigint, sum(r.failed)::bigint,
    sum(r.lease_lost)::bigint, sum(r.dead)::bigint
FROM read r JOIN queue_lane l ON l.id = r.lane_id
GROUP BY r.minute, l.queue_id, l.priority
ORDER BY r.minute
