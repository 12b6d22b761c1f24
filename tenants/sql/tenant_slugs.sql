-- tenant_slugs: the slugs of these tenants, as far as this shard has been told.
-- params: tenant_ids
-- plan: by index
SELECT t.tenant_id, t.slug FROM tenants_tenantstate t
WHERE t.tenant_id = ANY(%(tenant_ids)s::bigint[]) AND t.slug <> ''
