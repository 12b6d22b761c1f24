-- audit_seals: the seals that the control database holds.
-- params: above (id), seal (the action of seals), limit
-- returns id, target, details (JSON)
SELECT e.id, e.target, e.details FROM tenants_auditentry e
WHERE e.tenant_id IS NULL AND e.id > %(above)s::bigint AND e.action = %(seal)s::text
ORDER BY e.id LIMIT %(limit)s::int
