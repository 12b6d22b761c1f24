-- lane_find: the lanes of these keys that are there.
-- params: queue_ids, priorities, tenant_ids, kinds, dependencies (one key a position)
-- returns lane_id and its key
-- plan: by index, once
SELECT l.id, l.queue_id, l.priority, l.tenant_id, l.kind, l.dependency
FROM unnest(
    %(queue_ids)s::bigint[], %(priorities)s::smallint[], %(tenant_ids)s::bigint[], %(kinds)s::text[],
    %(dependencies)s::text[]
) AS a(queue_id, priority, tenant_id, kind, dependency)
JOIN queue_lane l USING (queue_id, priority, tenant_id, kind, dependency)
