(
        SELECT l.id FROM queue_lane l
        WHERE a.tenant_id > 0 AND l.tenant_id = a.tenant_id AND (a.queue = '' OR l.queue_id = a.queue_id)
            AND (a.band < 0 OR l.priority = a.band)
        UNION ALL
        SELECT l.id FROM queue_lane l WHERE a.tenant_id = 0 AND l.queue_id = a.queue_id
    )
