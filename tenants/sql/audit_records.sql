-- audit_records: add entries of one kind about many targets, each sealing the one before it.
-- params: tenant_id, actor, action, targets, reason, details (JSON text), request_id
-- returns the entries' ids in the order of the targets.  run after audit_lock in the same transaction
WITH RECURSIVE told AS MATERIALIZED (
        SELECT clock_timestamp() AS at, %(details)s::jsonb AS details
    ),
    entry AS MATERIALIZED (
        SELECT ord, target FROM unnest(%(targets)s::text[]) WITH ORDINALITY AS t(target, ord)
    ),
    newest AS MATERIALIZED (
        SELECT e.entry_hash FROM tenants_auditentry e
        WHERE e.tenant_id IS NOT DISTINCT FROM %(tenant_id)s::bigint
        ORDER BY e.id DESC LIMIT 1
    ),
    sealed AS (
        SELECT 0::bigint AS ord, ''::text AS target, '\x'::bytea AS previous_hash,
            coalesce((SELECT entry_hash FROM newest), '\x'::bytea) AS entry_hash
        UNION ALL
        SELECT e.ord, e.target, s.entry_hash, tenants_audit_hash_v1(
            s.entry_hash, %(tenant_id)s::bigint, %(actor)s::text, %(action)s::text, e.target, %(reason)s::text,
            t.details, NULL, NULL, %(request_id)s::text, t.at
        )
        FROM sealed s JOIN entry e ON e.ord = s.ord + 1 CROSS JOIN told t
    )
INSERT INTO tenants_auditentry (
    tenant_id, actor, action, target, reason, details, request_id, at, previous_hash, entry_hash
)
SELECT %(tenant_id)s::bigint, %(actor)s::text, %(action)s::text, s.target, %(reason)s::text, t.details,
    %(request_id)s::text, t.at, s.previous_hash, s.entry_hash
FROM sealed s CROSS JOIN told t
WHERE s.ord > 0
ORDER BY s.ord
RETURNING id
