dozing AS MATERIALIZED (
        SELECT l.id FROM queue_lane l WHERE l.id IN (SELECT lane_id FROM woken) AND NOT l.is_active
        ORDER BY l.id FOR UPDATE
    ),
    awake AS (UPDATE queue_lane l SET is_active = true, used_at = clock_timestamp() FROM dozing d WHERE l.id = d.id)
