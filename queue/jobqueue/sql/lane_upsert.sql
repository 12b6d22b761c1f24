-- lane_upsert: the lanes of these keys, made where they are new.
-- params: queue_ids, priorities, tenant_ids, kinds, dependencies (one key a position); now
-- returns lane_id and its key.  locks: the new rows, in key order
-- A dependency that is named for the first time gets a state without limits.
-- plan: by index
WITH {clock},
    asked AS MATERIALIZED (
        SELECT DISTINCT queue_id, priority, tenant_id, kind, dependency
        FROM unnest(
            %(queue_ids)s::bigint[], %(priorities)s::smallint[], %(tenant_ids)s::bigint[],
            %(kinds)s::text[], %(dependencies)s::text[]
        ) AS a(queue_id, priority, tenant_id, kind, dependency)
    ),
    made AS (
        INSERT INTO queue_lane (queue_id, priority, tenant_id, kind, dependency, is_active, low, mean_ms)
        SELECT a.queue_id, a.priority, a.tenant_id, a.kind, a.dependency, true, 'epoch', k.cost_hint_s * 1000
        FROM asked a LEFT JOIN queue_kindrow k ON k.kind = a.kind
        ORDER BY a.queue_id, a.priority, a.tenant_id, a.kind, a.dependency
        ON CONFLICT DO NOTHING
        RETURNING id, queue_id, priority, tenant_id, kind, dependency
    ),
    named AS (
        INSERT INTO queue_dependencystate (name)
        SELECT DISTINCT m.dependency FROM made m WHERE m.dependency <> '' ORDER BY m.dependency
        ON CONFLICT DO NOTHING
    )
SELECT id, queue_id, priority, tenant_id, kind, dependency FROM made
UNION ALL
SELECT l.id, l.queue_id, l.priority, l.tenant_id, l.kind, l.dependency
FROM queue_lane l JOIN asked USING (queue_id, priority, tenant_id, kind, dependency)
