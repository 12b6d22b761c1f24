EXISTS (
        SELECT FROM queue_lane l
        WHERE l.queue_id = %(queue_id)s::bigint AND l.priority = ANY(%(first)s::smallint[]) AND l.is_active
            AND (%(kinds)s::text[] IS NULL OR l.kind = ANY(%(kinds)s::text[]))
            AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
            AND (EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh)
                OR EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low))
    )
