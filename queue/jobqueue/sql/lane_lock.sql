-- lane_lock: one at a time makes lanes of a tenant in a queue's band, so that their number stays as it was counted.
-- params: queue_ids, priorities, tenant_ids (one lane a position)
-- locks: one for each of these bands, in their order, to the end of the transaction
SELECT count(pg_advisory_xact_lock(hashtextextended(format('queue.lanes.%%s.%%s', s.priority, s.tenant_id), s.queue_id))::text)
FROM (
    SELECT DISTINCT a.queue_id, a.priority, a.tenant_id
    FROM unnest(%(queue_ids)s::bigint[], %(priorities)s::smallint[], %(tenant_ids)s::bigint[])
        AS a(queue_id, priority, tenant_id)
    ORDER BY a.queue_id, a.priority, a.tenant_id
    OFFSET 0
) s
