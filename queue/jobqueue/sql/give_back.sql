-- give_back: which leases that nobody has started their holder should give back: work two bands more urgent waits that
-- their holder's class of claims could do, and has been visible so long that no idle consumer will take it.
-- params: job_ids, visible_s, now
-- plan: by index, once
WITH {clock}
SELECT s.job_id
FROM unnest(%(job_ids)s::bigint[]) AS c(job_id)
JOIN queue_lease s ON s.job_id = c.job_id
JOIN queue_lane l ON l.id = s.lane_id
WHERE NOT s.is_started AND EXISTS (
    SELECT FROM queue_lane u
    WHERE u.queue_id = l.queue_id AND u.is_active AND u.priority <= l.priority - 2
        AND EXISTS (
            SELECT FROM queue_claimclass k
            WHERE k.queue_id = l.queue_id AND (k.tenant_id IS NULL OR k.tenant_id IN (l.tenant_id, u.tenant_id))
                AND (k.kinds IS NULL OR l.kind = ANY(k.kinds) AND u.kind = ANY(k.kinds))
                AND (k.max_priority IS NULL OR k.max_priority >= l.priority)
        )
        AND EXISTS (
            SELECT FROM queue_readyjob r
            WHERE r.lane_id = u.id AND r.fresh AND r.position >= u.low
                AND r.position <= (SELECT at FROM clock) - %(visible_s)s::float8 * interval '1 second'
        )
)
