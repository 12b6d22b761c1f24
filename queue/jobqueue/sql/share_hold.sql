-- share_hold: let nothing be started or admitted under this limit before the end of the transaction.
-- params: tenant_id, queue, band (-1: all).  locks: the tenant's state, then the limit's allowance: whoever counts
-- against the limit holds one of the two
-- plan: by index
WITH tenant AS MATERIALIZED (
        SELECT t.tenant_id FROM tenants_tenantstate t WHERE t.tenant_id = %(tenant_id)s::bigint FOR UPDATE OF t
    ),
    intake AS MATERIALIZED (
        SELECT a.id FROM tenants_allowance a
        WHERE a.tenant_id = %(tenant_id)s::bigint AND a.queue = %(queue)s::text AND a.band = %(band)s::int
        FOR UPDATE OF a
    )
SELECT (SELECT count(*) FROM tenant), (SELECT count(*) FROM intake)
