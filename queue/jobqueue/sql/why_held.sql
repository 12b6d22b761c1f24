-- why_held: let `claim_heads` look at limited tenants without holding them: nothing is taken here.
-- params: queue_id
SELECT set_config('jobsplatform.held_tenants', '{' || coalesce(string_agg(t.tenant_id::text, ','), '') || '}', true)
FROM tenants_tenantstate t
WHERE t.limits_running AND EXISTS (
    SELECT FROM queue_lane l WHERE l.tenant_id = t.tenant_id AND l.queue_id = %(queue_id)s::bigint AND l.is_active
)
