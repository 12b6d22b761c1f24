scopes AS MATERIALIZED (
        SELECT s.*, p.queue_id
        FROM unnest(%(tenant_ids)s::bigint[], %(queues)s::text[], %(bands)s::smallint[])
            WITH ORDINALITY AS s(tenant_id, queue, band, ord)
        LEFT JOIN queue_policyrow p ON p.name = s.queue
    )
