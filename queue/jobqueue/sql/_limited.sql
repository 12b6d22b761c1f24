limited AS MATERIALIZED (
        -- Dependencies that may bear less than this queue has of them.
        SELECT d.id FROM queue_dependencystate d
        WHERE (d.max_running IS NOT NULL OR d.rate_per_s IS NOT NULL OR d.ramp_from IS NOT NULL OR d.is_held_open
                OR d.breaker <> 'closed')
            AND EXISTS (
                SELECT FROM queue_lane l
                WHERE l.dependency = d.name AND l.dependency <> '' AND l.queue_id = %(queue_id)s::bigint AND l.is_active
            )
    )
