-- lane_awake: whether a lane exists, is active and was used lately, as this transaction sees it.
-- params: queue_id, priority, tenant_id, kind, dependency
-- returns one row, or none where it must be made or woken.  locks: none
-- plan: by index
SELECT l.id FROM queue_lane l
WHERE l.queue_id = %(queue_id)s::bigint AND l.priority = %(priority)s::smallint
    AND l.tenant_id = %(tenant_id)s::bigint AND l.kind = %(kind)s::text AND l.dependency = %(dependency)s::text
    AND NOT {lane_sleeps}
