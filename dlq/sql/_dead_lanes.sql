-- Lanes that hold dead letters, walked from one to the next along an index, as far as the caller may see them.
    lane_with AS (
        (SELECT d.lane_id FROM dlq_deadletter d WHERE %(tenant_id)s::bigint IS NULL ORDER BY d.lane_id LIMIT 1)
        UNION ALL
        SELECT (SELECT d.lane_id FROM dlq_deadletter d WHERE d.lane_id > w.lane_id ORDER BY d.lane_id LIMIT 1)
        FROM lane_with w WHERE w.lane_id IS NOT NULL
    ),
    candidate AS (
        SELECT l.id, l.tenant_id, l.queue_id, l.kind FROM queue_lane l
        WHERE %(tenant_id)s::bigint IS NOT NULL AND l.tenant_id = %(tenant_id)s::bigint
        UNION ALL
        SELECT l.id, l.tenant_id, l.queue_id, l.kind FROM lane_with w JOIN queue_lane l ON l.id = w.lane_id
    )
