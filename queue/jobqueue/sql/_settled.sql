settled AS (
        INSERT INTO queue_servicedelta (queue_id, tenant_id, moved_s)
        SELECT l.queue_id, l.tenant_id,
            sum((e.service_ms - e.charged_ms) / 1000.0 / greatest(1, coalesce(g.weight, t.weight, 1)))
        FROM ended e JOIN queue_lane l ON l.id = e.lane_id
        LEFT JOIN tenants_tenantstate t ON t.tenant_id = l.tenant_id
        LEFT JOIN LATERAL (
            -- The weight by which the start was charged.
            SELECT m.weight FROM tenants_tenantlimit m
            WHERE m.tenant_id = l.tenant_id AND m.weight IS NOT NULL AND (m.band IS NULL OR m.band = l.priority)
                AND m.queue IN ('', (SELECT name FROM queue_policyrow p WHERE p.queue_id = l.queue_id))
            ORDER BY m.band NULLS LAST, m.queue DESC LIMIT 1
        ) g ON true
        WHERE e.charged_ms IS NOT NULL
        GROUP BY l.queue_id, l.tenant_id
    )
