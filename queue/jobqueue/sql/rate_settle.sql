-- rate_settle: write down the tokens as the present share has refilled them, before it changes.
-- params: tenant_id, queue, band (-1: all), now.  run after share_hold.  locks: the allowance
-- plan: by index
WITH {clock}
UPDATE tenants_allowance a
SET filled_at = k.at, tokens = least(m.enqueue_burst, coalesce(
    a.tokens + m.enqueue_rate_per_s * greatest(0, extract(epoch FROM k.at - a.filled_at)::float8), m.enqueue_burst
))
FROM clock k, tenants_limithere m
WHERE a.tenant_id = %(tenant_id)s::bigint AND a.queue = %(queue)s::text AND a.band = %(band)s::smallint
    AND m.tenant_id = a.tenant_id AND m.queue = a.queue AND coalesce(m.band, -1) = a.band
    AND m.enqueue_rate_per_s IS NOT NULL
