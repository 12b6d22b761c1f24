-- hub_peeks: for which of these groups of callers something stands ready; no lock, and gates are not looked at. A group
-- costs a look into its queues' active lanes, whatever waits in others.
-- params: ords, queue_ids, max_priorities, kinds (names, a comma between them), tenant_ids: one queue of a group a position
--   (null: any)
-- returns ord of those groups
-- plan: by index, once
SELECT DISTINCT g.ord
FROM unnest(
    %(ords)s::int[], %(queue_ids)s::bigint[], %(max_priorities)s::int[], %(kinds)s::text[], %(tenant_ids)s::bigint[]
) AS g(ord, queue_id, max_priority, kinds, tenant_id)
WHERE EXISTS (
    SELECT FROM queue_lane l
    WHERE l.queue_id = g.queue_id AND l.is_active
        AND (g.max_priority IS NULL OR l.priority <= g.max_priority)
        AND (g.kinds IS NULL OR l.kind = ANY(string_to_array(g.kinds, ',')))
        AND (g.tenant_id IS NULL OR l.tenant_id = g.tenant_id)
        AND (EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id AND NOT r.fresh)
            OR EXISTS (SELECT FROM queue_readyjob r WHERE r.lane_id = l.id AND r.fresh AND r.position >= l.low))
)
