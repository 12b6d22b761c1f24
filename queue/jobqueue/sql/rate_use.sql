-- rate_use: this shard's share of a rate's burst, and what is used and wanted of it: as share_use has them.
-- params: tenant_id, queue, band (-1: all), now
-- returns share and version (null: none yet), used (tokens that are spent and not back yet), wanted (jobs that it has
--   turned away in this minute or the last)
-- plan: by index
WITH {clock}
SELECT s.share, s.version,
    coalesce(ceil(m.enqueue_burst - least(m.enqueue_burst, coalesce(
        a.tokens + m.enqueue_rate_per_s * greatest(0, extract(epoch FROM k.at - a.filled_at)::float8), m.enqueue_burst
    )) - 1e-9), 0)::bigint,
    (SELECT coalesce(sum(r.jobs), 0) FROM (
        SELECT x.jobs FROM tenants_refusalminute x
        WHERE x.tenant_id = %(tenant_id)s::bigint AND x.queue = %(queue)s::text AND x.band = %(band)s::smallint
            AND x.cause = 'enqueue_rate_per_s' AND x.minute >= date_trunc('minute', k.at) - interval '1 minute'
        UNION ALL
        SELECT x.jobs FROM tenants_refusaldelta x
        WHERE x.tenant_id = %(tenant_id)s::bigint AND x.queue = %(queue)s::text AND x.band = %(band)s::smallint
            AND x.cause = 'enqueue_rate_per_s'
    ) r)::bigint
FROM clock k
LEFT JOIN tenants_limithere m ON m.tenant_id = %(tenant_id)s::bigint AND m.queue = %(queue)s::text
    AND coalesce(m.band, -1) = %(band)s::smallint
LEFT JOIN tenants_allowance a ON a.tenant_id = %(tenant_id)s::bigint AND a.queue = %(queue)s::text
    AND a.band = %(band)s::smallint
LEFT JOIN tenants_limitshare s ON s.tenant_id = %(tenant_id)s::bigint AND s.queue = %(queue)s::text
    AND s.band = %(band)s::smallint AND s.resource = 'rate'
