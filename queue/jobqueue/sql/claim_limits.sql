-- claim_limits: take hold of the limited tenants that this queue could start; a busy one counts as gated.
-- params: queue_id
-- The names of those held travel to `claim_heads` in a setting of this transaction, so that lock and count are two
-- statements in one round trip.  locks: TenantState rows in id order, SKIP LOCKED
WITH held AS MATERIALIZED (
        SELECT tenant_id FROM tenants_tenantstate
        WHERE max_running IS NOT NULL
            AND tenant_id IN (SELECT tenant_id FROM queue_lane WHERE queue_id = %(queue_id)s::bigint AND is_active)
        ORDER BY tenant_id
        FOR UPDATE SKIP LOCKED
    )
SELECT set_config('jobsplatform.held_tenants', '{' || coalesce(string_agg(tenant_id::text, ','), '') || '}', true)
FROM held
