-- claim_limits: take hold of the tenants that this queue could start and that have a limit here; a busy one counts as
-- gated. One that is limited in other queues alone is left to their claims.
-- params: queue_id, claim_class, part
-- returns the names of those held, and the newest state of the scheduler
-- The names of those held travel to `claim_heads` in a setting of this transaction, so that lock and count are two
-- statements in one round trip.  locks: TenantState rows in id order, SKIP LOCKED
WITH held AS MATERIALIZED (
        SELECT t.tenant_id FROM tenants_tenantstate t
        WHERE t.limits_running AND EXISTS (
            SELECT FROM queue_lane l WHERE l.tenant_id = t.tenant_id AND l.queue_id = %(queue_id)s::bigint AND l.is_active
        ) AND EXISTS (
            SELECT FROM tenants_tenantlimit m
            WHERE m.tenant_id = t.tenant_id AND m.max_running IS NOT NULL
                AND m.queue IN ('', (SELECT name FROM queue_policyrow WHERE queue_id = %(queue_id)s::bigint))
        )
        ORDER BY t.tenant_id
        FOR UPDATE OF t SKIP LOCKED
    )
SELECT set_config('jobsplatform.held_tenants', '{' || coalesce(string_agg(tenant_id::text, ','), '') || '}', true), (
    SELECT s.state FROM queue_schedulerstate s
    WHERE s.queue_id = %(queue_id)s::bigint AND s.claim_class = %(claim_class)s::bytea AND s.part = %(part)s::text
    ORDER BY s.id DESC LIMIT 1
)
FROM held
