-- refusals: jobs of a tenant that were turned away lately, by limit and cause; those not folded yet too.
-- params: tenant_id, since_s, now
-- returns queue, band, cause, jobs
-- plan: by index
WITH {clock},
    since AS MATERIALIZED (SELECT at - make_interval(secs => %(since_s)s::float8) AS at FROM clock)
SELECT r.queue, r.band, r.cause, sum(r.jobs)::bigint
FROM (
    SELECT m.queue, m.band, m.cause, m.jobs FROM tenants_refusalminute m
    WHERE m.tenant_id = %(tenant_id)s::bigint AND m.minute >= (SELECT at FROM since)
    UNION ALL
    SELECT d.queue, d.band, d.cause, d.jobs
    FROM (SELECT * FROM tenants_refusaldelta ORDER BY id LIMIT 10000) d
    WHERE d.tenant_id = %(tenant_id)s::bigint AND d.at >= (SELECT at FROM since)
) r
GROUP BY r.queue, r.band, r.cause
