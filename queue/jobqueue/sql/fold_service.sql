-- fold_service: add the oldest charges and settlements to their tenants.
-- A debt is cut here to what `policy.plan.capped` allows: no tenant waits for more service of others than that.
-- params: limit, debt_max_s
-- returns how many rows were folded.  locks: delta rows (SKIP LOCKED), then tenants in key order
-- plan: by index
WITH taken AS (
        DELETE FROM queue_servicedelta d
        USING (SELECT id FROM queue_servicedelta ORDER BY id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED) o
        WHERE d.id = o.id
        RETURNING d.queue_id, d.tenant_id, d.moved_s
    ),
    virtual AS MATERIALIZED (
        SELECT q.queue_id, coalesce((
            SELECT max((s.state->>'virtual_s')::float8) FROM queue_schedulerstate s WHERE s.queue_id = q.queue_id
        ), 0) AS virtual_s
        FROM (SELECT DISTINCT queue_id FROM taken) q
    ),
    folded AS (
        INSERT INTO queue_tenantservice AS s (queue_id, tenant_id, served_s)
        SELECT t.queue_id, t.tenant_id, least(sum(t.moved_s), v.virtual_s + %(debt_max_s)s::float8)
        FROM taken t JOIN virtual v ON v.queue_id = t.queue_id
        GROUP BY t.queue_id, t.tenant_id, v.virtual_s ORDER BY t.queue_id, t.tenant_id
        ON CONFLICT (queue_id, tenant_id) DO UPDATE SET served_s = least(
            s.served_s + excluded.served_s,
            (SELECT v.virtual_s + %(debt_max_s)s::float8 FROM virtual v WHERE v.queue_id = s.queue_id)
        )
    )
SELECT count(*) FROM taken
