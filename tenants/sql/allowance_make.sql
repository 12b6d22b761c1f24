-- allowance_make: the rows that hold what is left of these limits, made where they are new.
-- params: tenant_ids, queues, bands (one scope a position: 0 all tenants, '' all queues, -1 all bands)
-- locks: the new rows, in key order
INSERT INTO tenants_allowance (tenant_id, queue, band)
SELECT s.tenant_id, s.queue, s.band
FROM unnest(%(tenant_ids)s::bigint[], %(queues)s::text[], %(bands)s::smallint[]) AS s(tenant_id, queue, band)
ORDER BY s.tenant_id, s.queue, s.band
ON CONFLICT DO NOTHING
