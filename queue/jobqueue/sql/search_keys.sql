-- search_keys: jobs of a request key, whoever's and in whichever queue, by probing each (tenant, queue) that has lanes.
-- params: key, tenant_id (null: every tenant), pairs_max (probes), limit
-- returns job_id
-- plan: by index
WITH RECURSIVE pair AS (
        (
            SELECT l.tenant_id, l.queue_id FROM queue_lane l
            WHERE l.tenant_id >= coalesce(%(tenant_id)s::bigint, 0)
                AND l.tenant_id <= coalesce(%(tenant_id)s::bigint, 9223372036854775807)
            ORDER BY l.tenant_id, l.queue_id LIMIT 1
        )
        UNION ALL
        SELECT n.tenant_id, n.queue_id FROM pair p CROSS JOIN LATERAL (
            SELECT l.tenant_id, l.queue_id FROM queue_lane l
            WHERE (l.tenant_id, l.queue_id) > (p.tenant_id, p.queue_id)
                AND l.tenant_id <= coalesce(%(tenant_id)s::bigint, 9223372036854775807)
            ORDER BY l.tenant_id, l.queue_id LIMIT 1
        ) n
    ),
    asked AS MATERIALIZED (SELECT tenant_id, queue_id FROM pair LIMIT %(pairs_max)s::int)
SELECT k.job_id
FROM asked a CROSS JOIN LATERAL (
    SELECT k.job_id FROM queue_requestkey k
    WHERE k.tenant_id = a.tenant_id AND k.queue_id = a.queue_id AND k.namespace IN (0, 1) AND k.key = %(key)s::text
) k
LIMIT %(limit)s::int
