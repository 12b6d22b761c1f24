-- audit_record: add an entry that seals the newest one of its tenant's chain.
-- params: tenant_id, actor, action, target, reason, details (JSON text), before_hash, after_hash, request_id
-- returns the entry's id.  run after audit_lock in the same transaction
WITH newest AS MATERIALIZED (
        SELECT e.entry_hash FROM tenants_auditentry e
        WHERE e.tenant_id IS NOT DISTINCT FROM %(tenant_id)s::bigint
        ORDER BY e.id DESC LIMIT 1
    ),
    entry AS MATERIALIZED (
        SELECT clock_timestamp() AS at, coalesce((SELECT entry_hash FROM newest), '\x'::bytea) AS previous_hash,
            %(details)s::jsonb AS details
    )
INSERT INTO tenants_auditentry (
    tenant_id, actor, action, target, reason, details, before_hash, after_hash, request_id, at, previous_hash,
    entry_hash
)
SELECT %(tenant_id)s::bigint, %(actor)s::text, %(action)s::text, %(target)s::text, %(reason)s::text, e.details,
    %(before_hash)s::bytea, %(after_hash)s::bytea, %(request_id)s::text, e.at, e.previous_hash,
    tenants_audit_hash_v1(
        e.previous_hash, %(tenant_id)s::bigint, %(actor)s::text, %(action)s::text, %(target)s::text, %(reason)s::text,
        e.details, %(before_hash)s::bytea, %(after_hash)s::bytea, %(request_id)s::text, e.at
    )
FROM entry e
RETURNING id
