-- refuse: note the jobs that limits have turned away, in rows of their own: refusals never wait for each other.
-- params: tenant_ids, queues, bands, causes, jobs (one a position); at
INSERT INTO tenants_refusaldelta (tenant_id, queue, band, cause, jobs, at)
SELECT r.tenant_id, r.queue, r.band, r.cause, r.jobs, %(at)s::timestamptz
FROM unnest(
    %(tenant_ids)s::bigint[], %(queues)s::text[], %(bands)s::smallint[], %(causes)s::text[], %(jobs)s::int[]
) AS r(tenant_id, queue, band, cause, jobs)
