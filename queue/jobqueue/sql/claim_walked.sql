-- claim_walked: how far the bounded walk of each band goes from its cursor.
-- params: queue_id, bands and after (one cursor a band), probes
-- returns band, lanes met, and the tenants of the first and the last one
SELECT b.band, count(*)::int, (array_agg(w.tenant_id ORDER BY w.wrapped, w.tenant_id))[1],
    (array_agg(w.tenant_id ORDER BY w.wrapped DESC, w.tenant_id DESC))[1]
FROM unnest(%(bands)s::smallint[], %(after)s::bigint[]) AS b(band, after)
CROSS JOIN LATERAL (
    SELECT * FROM (
        (SELECT x.tenant_id, false AS wrapped FROM queue_lane x
         WHERE x.queue_id = %(queue_id)s::bigint AND x.priority = b.band AND x.is_active AND x.tenant_id >= b.after
         ORDER BY x.tenant_id, x.id LIMIT %(probes)s::int)
        UNION ALL
        (SELECT x.tenant_id, true FROM queue_lane x
         WHERE x.queue_id = %(queue_id)s::bigint AND x.priority = b.band AND x.is_active AND x.tenant_id < b.after
         ORDER BY x.tenant_id, x.id LIMIT %(probes)s::int)
    ) around
    LIMIT %(probes)s::int
) w
GROUP BY b.band
