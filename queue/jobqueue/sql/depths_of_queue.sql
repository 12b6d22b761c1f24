-- depths_of_queue: how much of all tenants together waited in a queue, and for how long, by band and steps of time.
-- params: queue_id, since_s, step_s, rows_max (samples that are read, the newest), now
-- returns as depths_of_tenant
-- plan: by index
WITH {clock},
    since AS MATERIALIZED (SELECT k.at - make_interval(secs => %(since_s)s::float8) AS at FROM clock k),
    depths AS MATERIALIZED (
        SELECT d.minute, d.queue_id, d.priority, d.ready, d.age_s, d.is_capped FROM queue_depthminute d
        WHERE d.tenant_id = 0 AND d.queue_id = %(queue_id)s::bigint AND d.minute > (SELECT at FROM since)
        ORDER BY d.minute DESC LIMIT %(rows_max)s::int
    ),
    {depth_steps}
