-- rate_move: tokens go with the share: what is given back is given back whole, and what is granted comes whole.
-- params: tenant_id, queue, band (-1: all), moved (less than 0: given back).  run after rate_settle.  locks: the allowance
-- plan: by index
UPDATE tenants_allowance a SET tokens = greatest(0, a.tokens + %(moved)s::int)
WHERE a.tenant_id = %(tenant_id)s::bigint AND a.queue = %(queue)s::text AND a.band = %(band)s::smallint
