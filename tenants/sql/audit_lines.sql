-- audit_lines: entries as a list shows them, newest first.
-- params: ids, tenant_id (null: every chain)
-- returns id, tenant_id, at, actor, action, target, reason, details, before_hash, after_hash, request_id, entry_hash
-- plan: by index
SELECT e.id, e.tenant_id, e.at, e.actor, e.action, e.target, e.reason, e.details, encode(e.before_hash, 'hex'),
    encode(e.after_hash, 'hex'), e.request_id, encode(e.entry_hash, 'hex')
FROM tenants_auditentry e
WHERE e.id = ANY(%(ids)s::bigint[]) AND (%(tenant_id)s::bigint IS NULL OR e.tenant_id = %(tenant_id)s::bigint)
ORDER BY e.id DESC
