(%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
        AND (%(queue_ids)s::bigint[] IS NULL OR l.queue_id = ANY(%(queue_ids)s::bigint[]))
