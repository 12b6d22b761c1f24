-- claim_hold: take hold of these limited tenants to the end of the transaction; one that another claim holds is left.
-- params: tenant_ids
-- returns those held. Their names travel to `claim_rooms` in a setting of this transaction, so that lock and count are
-- two statements in one round trip.  locks: TenantState rows in id order, SKIP LOCKED
-- plan: by index
WITH held AS MATERIALIZED (
        SELECT t.tenant_id FROM tenants_tenantstate t
        WHERE t.tenant_id = ANY(%(tenant_ids)s::bigint[])
        ORDER BY t.tenant_id
        FOR UPDATE OF t SKIP LOCKED
    )
SELECT coalesce(array_agg(tenant_id), '{}'),
    set_config('jobsplatform.held_tenants', '{' || coalesce(string_agg(tenant_id::text, ','), '') || '}', true)
FROM held
