-- dedup_free: let go of deduplication keys whose window, counted from their first acceptance, is over.
-- params: tenant_ids, queue_ids, keys (one key a position), namespace, now
-- returns how many.  locks: the keys, in key order
-- plan: by index
WITH {clock},
    over AS MATERIALIZED (
        SELECT k.id
        FROM unnest(%(tenant_ids)s::bigint[], %(queue_ids)s::bigint[], %(keys)s::text[]) AS a(tenant_id, queue_id, key)
        JOIN queue_requestkey k ON k.tenant_id = a.tenant_id AND k.queue_id = a.queue_id
            AND k.namespace = %(namespace)s::smallint AND k.key = a.key
        JOIN queue_policyrow p ON p.queue_id = k.queue_id
        WHERE k.accepted_at <= (SELECT at FROM clock) - p.dedup_window_s * interval '1 second'
        ORDER BY k.tenant_id, k.queue_id, k.key
        FOR UPDATE OF k
    ),
    freed AS (DELETE FROM queue_requestkey k USING over o WHERE k.id = o.id)
SELECT count(*) FROM over
