CROSS JOIN LATERAL (
            -- Looked up one by one, whatever the planner believes of the table's size.
            SELECT j.id, j.tenant_id, j.queue_id, j.kind, j.priority, j.created_at
            FROM queue_job j WHERE j.id = o.id OFFSET 0
        ) l
