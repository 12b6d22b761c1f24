-- depths_of_tenant: how much of a tenant waited, and for how long, by queue, band and steps of time.
-- params: tenant_id, since_s, step_s, rows_max (samples that are read, the newest), now
-- returns a row each step that was looked at (queue_id null), and a row each step, queue and band in which something
--   waited: the step's beginning, queue_id, priority, the most ready, the longest wait in seconds, whether a count
--   reached its bound
-- plan: by index
WITH {clock},
    since AS MATERIALIZED (SELECT k.at - make_interval(secs => %(since_s)s::float8) AS at FROM clock k),
    depths AS MATERIALIZED (
        SELECT d.minute, d.queue_id, d.priority, d.ready, d.age_s, d.is_capped FROM queue_depthminute d
        WHERE d.tenant_id = %(tenant_id)s::bigint AND d.minute > (SELECT at FROM since)
        ORDER BY d.minute DESC LIMIT %(rows_max)s::int
    ),
    {depth_steps}
