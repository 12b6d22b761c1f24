-- drain: how many jobs a second have left the backlog of each scope in the last five minutes, net of those that returned.
-- params: tenant_ids, queues, bands (as in admit_limits); now
-- returns ord and the rate; no row: nothing was measured
-- plan: by index
WITH {clock},
    {scopes}
SELECT a.ord, sum(greatest(0, m.started - m.retried - m.lease_lost))::float8
    / greatest(1, extract(epoch FROM (SELECT at FROM clock) - min(m.minute))::float8)
FROM scopes a
CROSS JOIN LATERAL {scope_lanes} n
JOIN queue_laneminute m ON m.lane_id = n.id
WHERE m.minute > (SELECT at FROM clock) - interval '5 minutes' AND m.minute <= (SELECT at FROM clock)
GROUP BY a.ord
