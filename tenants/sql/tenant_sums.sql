-- tenant_sums: how many tenants this shard knows whole, and the sum of their versions.
SELECT count(*), coalesce(sum(t.version), 0)::bigint FROM tenants_tenantstate t WHERE t.slug <> ''
