-- lane_upsert: the lanes of these keys, made where they are new and their tenant has not too many in that band.
-- params: queue_ids, priorities, tenant_ids, kinds, dependencies (one key a position); lanes_max (null: any number)
-- returns lane_id and its key of those that are there.  run after lane_lock in the same transaction
-- locks: the new rows, in key order; the states of their dependencies, so that none is forgotten meanwhile
-- A dependency that is named for the first time gets a state without limits.
-- plan: by index
WITH asked AS MATERIALIZED (
        SELECT DISTINCT queue_id, priority, tenant_id, kind, dependency
        FROM unnest(
            %(queue_ids)s::bigint[], %(priorities)s::smallint[], %(tenant_ids)s::bigint[],
            %(kinds)s::text[], %(dependencies)s::text[]
        ) AS a(queue_id, priority, tenant_id, kind, dependency)
    ),
    fresh AS MATERIALIZED (
        SELECT a.*, row_number() OVER (
            PARTITION BY a.queue_id, a.priority, a.tenant_id ORDER BY a.kind, a.dependency
        ) AS nth
        FROM asked a
        WHERE NOT EXISTS (
            SELECT FROM queue_lane l
            WHERE l.queue_id = a.queue_id AND l.priority = a.priority AND l.tenant_id = a.tenant_id
                AND l.kind = a.kind AND l.dependency = a.dependency
        )
    ),
    counted AS MATERIALIZED (
        SELECT b.queue_id, b.priority, b.tenant_id, (
            SELECT count(*) FROM queue_lane l
            WHERE l.tenant_id = b.tenant_id AND l.queue_id = b.queue_id AND l.priority = b.priority
        ) AS lanes
        FROM fresh b WHERE b.nth = 1
    ),
    made AS (
        INSERT INTO queue_lane (queue_id, priority, tenant_id, kind, dependency, is_active, low, mean_ms)
        SELECT f.queue_id, f.priority, f.tenant_id, f.kind, f.dependency, true, 'epoch', k.cost_hint_s * 1000
        FROM fresh f
        JOIN counted c ON c.queue_id = f.queue_id AND c.priority = f.priority AND c.tenant_id = f.tenant_id
        LEFT JOIN queue_kindrow k ON k.kind = f.kind
        WHERE coalesce(c.lanes + f.nth <= %(lanes_max)s::int, true)
        ORDER BY f.queue_id, f.priority, f.tenant_id, f.kind, f.dependency
        ON CONFLICT DO NOTHING
        RETURNING id, queue_id, priority, tenant_id, kind, dependency
    ),
    named AS (
        INSERT INTO queue_dependencystate AS d (name)
        SELECT DISTINCT m.dependency FROM made m WHERE m.dependency <> '' ORDER BY m.dependency
        ON CONFLICT (name) DO UPDATE SET name = excluded.name
    )
SELECT id, queue_id, priority, tenant_id, kind, dependency FROM made
UNION ALL
SELECT l.id, l.queue_id, l.priority, l.tenant_id, l.kind, l.dependency
FROM queue_lane l JOIN asked USING (queue_id, priority, tenant_id, kind, dependency)
