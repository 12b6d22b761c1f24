-- claim_rooms: how many starts each running limit of the tenants that `claim_hold` holds leaves in this queue.
-- params: queue_id
-- returns tenant_id, limit_id, band (null: all bands), left
-- plan: by index
SELECT m.tenant_id, m.id, m.band, greatest(0, m.max_running - (SELECT count(*) FROM ({leases_of_limit}) running))::int
FROM unnest(current_setting('jobsplatform.held_tenants')::bigint[]) AS h(tenant_id)
JOIN tenants_limithere m ON m.tenant_id = h.tenant_id
WHERE m.max_running IS NOT NULL
    AND m.queue IN ('', (SELECT name FROM queue_policyrow WHERE queue_id = %(queue_id)s::bigint))
