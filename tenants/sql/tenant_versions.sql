-- tenant_versions: of which version of each tenant this shard has been told whole.
SELECT t.tenant_id, t.version FROM tenants_tenantstate t WHERE t.slug <> ''
