-- hub_peek: whether anything stands ready in these queues for these callers; no lock, and gates are not looked at.
-- params: queue_ids, max_priority (null: any), kinds (null: any), tenant_id (null: any)
-- plan: by index, once
SELECT EXISTS (
    SELECT FROM queue_lane l
    WHERE l.queue_id = ANY(%(queue_ids)s::bigint[]) AND l.is_active
        AND (%(max_priority)s::int IS NULL OR l.priority <= %(max_priority)s::int)
        AND (%(kinds)s::text[] IS NULL OR l.kind = ANY(%(kinds)s::text[]))
        AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
        AND (EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh)
            OR EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low))
)
