-- audit_sealed_to: up to which entry the chains of a database were sealed.  run on the control database
-- params: target, seal (the action of seals)
-- returns id; no row: never
SELECT (e.details->>'to')::bigint FROM tenants_auditentry e
WHERE e.target = %(target)s::text AND e.action = %(seal)s::text
ORDER BY e.id DESC LIMIT 1
