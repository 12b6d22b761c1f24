-- audit_check: entries of this database whose seal does not hold, or that do not seal the entry before them.
-- params: above (id), limit (entries looked at)
-- returns id, tenant_id, action, target, is_unsealed, is_unlinked of each such entry, and a last row of nulls but the id
-- of the last entry looked at; no row at all: there are no entries above
WITH looked AS MATERIALIZED (
        SELECT e.id, e.tenant_id, e.actor, e.action, e.target, e.reason, e.details, e.before_hash, e.after_hash,
            e.request_id, e.at, e.previous_hash, e.entry_hash
        FROM tenants_auditentry e WHERE e.id > %(above)s::bigint ORDER BY e.id LIMIT %(limit)s::int
    ),
    checked AS (
        SELECT l.id, l.tenant_id, l.action, l.target,
            l.entry_hash <> tenants_audit_hash_v1(
                l.previous_hash, l.tenant_id, l.actor, l.action, l.target, l.reason, l.details, l.before_hash,
                l.after_hash, l.request_id, l.at
            ) AS is_unsealed,
            l.previous_hash <> coalesce(CASE WHEN l.tenant_id IS NULL THEN (
                SELECT b.entry_hash FROM tenants_auditentry b WHERE b.tenant_id IS NULL AND b.id < l.id
                ORDER BY b.id DESC LIMIT 1
            ) ELSE (
                SELECT b.entry_hash FROM tenants_auditentry b WHERE b.tenant_id = l.tenant_id AND b.id < l.id
                ORDER BY b.id DESC LIMIT 1
            ) END, '\x'::bytea) AS is_unlinked
        FROM looked l
    )
SELECT id, tenant_id, action, target, is_unsealed, is_unlinked FROM checked WHERE is_unsealed OR is_unlinked
UNION ALL
SELECT max(id), NULL, NULL, NULL, NULL, NULL FROM looked HAVING max(id) IS NOT NULL
