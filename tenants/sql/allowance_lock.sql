-- allowance_lock: one admission at a time under each of these limits; held to the end of the transaction.
-- params: tenant_ids, queues, bands (as in allowance_make)
-- locks: allowances in key order
-- plan: by index
WITH scopes AS MATERIALIZED (
        SELECT * FROM unnest(%(tenant_ids)s::bigint[], %(queues)s::text[], %(bands)s::smallint[])
            AS s(tenant_id, queue, band)
    )
SELECT a.id FROM scopes s
JOIN tenants_allowance a ON a.tenant_id = s.tenant_id AND a.queue = s.queue AND a.band = s.band
ORDER BY a.tenant_id, a.queue, a.band
FOR UPDATE OF a
