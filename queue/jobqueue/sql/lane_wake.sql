-- lane_wake: make a lane active before it holds work; a sweep puts it to sleep again if none comes for a while.
-- params: queue_id, priority, tenant_id, kind, dependency
-- locks: the lane's row
-- plan: by index
UPDATE queue_lane l SET is_active = true, used_at = clock_timestamp()
WHERE l.queue_id = %(queue_id)s::bigint AND l.priority = %(priority)s::smallint
    AND l.tenant_id = %(tenant_id)s::bigint AND l.kind = %(kind)s::text AND l.dependency = %(dependency)s::text
    AND {lane_sleeps}
