-- overview_shard: what one shard is and how much stands there.
-- params: bound (rows of a place that are counted), now
-- returns one row: the server's version, whether it can be written, seconds by which its clock is behind one that it
--   showed before (null: it is not), seconds since the oldest ready job of any active lane became ready (null: none),
--   ready, running, dead (each counted up to the bound)
-- plan: by index
WITH {clock},
    looked AS MATERIALIZED (
        SELECT l.id, l.low FROM queue_lane l
        WHERE l.is_active ORDER BY l.queue_id, l.priority, l.tenant_id, l.id LIMIT 2000
    )
SELECT current_setting('server_version'),
    NOT (pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean),
    (SELECT extract(epoch FROM h.at - k.at)::float8 FROM (SELECT max(at) AS at FROM queue_horizon) h WHERE h.at > k.at),
    (SELECT extract(epoch FROM k.at - min(x.position))::float8
     FROM looked n CROSS JOIN LATERAL (
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND NOT r.fresh
         ORDER BY r.position, r.job_id LIMIT 1)
        UNION ALL
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND r.fresh AND r.position >= n.low
         ORDER BY r.position, r.job_id LIMIT 1)
     ) x),
    (SELECT count(*) FROM (SELECT FROM queue_readyjob LIMIT %(bound)s::int) x),
    (SELECT count(*) FROM (SELECT FROM queue_lease LIMIT %(bound)s::int) x),
    (SELECT count(*) FROM (SELECT FROM dlq_deadletter LIMIT %(bound)s::int) x)
FROM clock k
