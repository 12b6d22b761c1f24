-- audit_lock: one writer at a time lengthens a tenant's chain; held to the end of the transaction.
-- params: tenant_id
SELECT pg_advisory_xact_lock(hashtextextended('tenants.audit', coalesce(%(tenant_id)s::bigint, -1)))
