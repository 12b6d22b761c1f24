-- outlook: when a job that is enqueued now would start, a scope: its tenant's jobs that wait in its band go first, at
--   the rate at which they started since the oldest of them has waited. Unknown where nothing has waited for ten
--   seconds (starts say nothing of a backlog that there is not), or nothing has started.
-- params: tenant_ids, queues, bands (as in admit_limits); now
-- returns ord and the instant; no row: unknown
-- plan: by index
WITH {clock},
    {scopes},
    lanes AS MATERIALIZED (SELECT a.ord, n.id FROM scopes a CROSS JOIN LATERAL {scope_lanes} n),
    backlog AS MATERIALIZED (
        SELECT n.ord, min(r.position) AS oldest, count(*) AS waiting
        FROM lanes n
        CROSS JOIN LATERAL (SELECT position FROM queue_readyjob r WHERE r.lane_id = n.id LIMIT 100000) r
        GROUP BY n.ord
    ),
    watched AS MATERIALIZED (
        SELECT b.ord, b.waiting, date_trunc('minute', greatest(b.oldest, k.at - interval '5 minutes')) AS since, k.at
        FROM backlog b CROSS JOIN clock k
        WHERE b.oldest <= k.at - interval '10 seconds'
    )
SELECT w.ord, w.at + w.waiting * (w.at - w.since) / sum(m.started)
FROM watched w
JOIN lanes n USING (ord)
JOIN queue_laneminute m ON m.lane_id = n.id AND m.minute >= w.since AND m.minute <= w.at
GROUP BY w.ord, w.waiting, w.at, w.since
HAVING sum(m.started) > 0
