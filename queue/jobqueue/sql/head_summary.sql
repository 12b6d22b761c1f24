-- head_summary: what waits in the active lanes of these queues, by band; no lock. Lanes behind a gate are not active.
-- params: queue_ids, max_priority (null: any), kinds (null: any), tenant_id (null: any), probes (lanes a band that are
--   looked at), depth (jobs counted a lane)
-- returns queue_id, band, count (at least), since when the first waits (epoch seconds)
-- plan: by index
SELECT p.queue_id, b.band, sum(h.jobs)::bigint, min(extract(epoch FROM h.since))::float8
FROM unnest(%(queue_ids)s::bigint[]) AS q(queue_id)
JOIN queue_policyrow p ON p.queue_id = q.queue_id AND NOT p.is_dispatch_paused
CROSS JOIN LATERAL generate_series(
    0, least(jsonb_array_length(p.bands) - 1, coalesce(%(max_priority)s::int, 99))
) AS b(band)
CROSS JOIN LATERAL (
    SELECT l.id, l.low FROM queue_lane l
    WHERE l.is_active AND l.queue_id = p.queue_id AND l.priority = b.band
        AND (%(kinds)s::text[] IS NULL OR l.kind = ANY(%(kinds)s::text[]))
        AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
    ORDER BY l.tenant_id, l.id
    LIMIT %(probes)s::int
) n
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(r.position) AS since FROM (
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND NOT r.fresh
         ORDER BY r.position, r.job_id LIMIT %(depth)s::int)
        UNION ALL
        (SELECT r.position FROM queue_readyjob r WHERE r.lane_id = n.id AND r.fresh AND r.position >= n.low
         ORDER BY r.position, r.job_id LIMIT %(depth)s::int)
    ) r
) h
WHERE h.jobs > 0
GROUP BY p.queue_id, b.band
