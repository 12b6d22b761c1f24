-- slot_keys: request keys of some slots, in the order of their rows, with what must travel with them.
-- params: slots; queue_id, tenant_id (of the ring: null: any), other_queues and other_tenants (which have rings of
--   their own), above (row id), limit, since (a transaction id: only what younger transactions wrote; null: all)
-- returns row id (of the last row looked at, in a last row of nulls otherwise), tenant_id, queue_id, namespace, key,
--   job_id, fingerprint, accepted_at, job_purged_at
WITH looked AS MATERIALIZED (
        SELECT k.*, k.xmin AS written FROM queue_requestkey k
        WHERE k.id > %(above)s::bigint ORDER BY k.id LIMIT %(limit)s::int
    ),
    chosen AS (
        SELECT k.*, sha256(convert_to(
            k.tenant_id || ':' || k.queue_id || ':' || k.namespace || ':' || k.key, 'UTF8')) AS digest
        FROM looked k
        WHERE (%(since)s::bigint IS NULL OR age(k.written) <= age((%(since)s::bigint %% 4294967296)::text::xid))
            AND (%(queue_id)s::bigint IS NULL OR k.queue_id = %(queue_id)s::bigint)
            AND (%(tenant_id)s::bigint IS NULL OR k.tenant_id = %(tenant_id)s::bigint)
            AND NOT k.queue_id = ANY(%(other_queues)s::bigint[])
            AND NOT k.tenant_id = ANY(%(other_tenants)s::bigint[])
    )
SELECT c.id, c.tenant_id, c.queue_id, c.namespace, c.key, c.job_id, c.fingerprint, c.accepted_at, c.job_purged_at
FROM chosen c
WHERE ((get_byte(c.digest, 0) << 4) | (get_byte(c.digest, 1) >> 4)) = ANY(%(slots)s::int[])
UNION ALL
SELECT max(id), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM looked HAVING max(id) IS NOT NULL
