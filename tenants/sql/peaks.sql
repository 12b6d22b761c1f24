-- peaks: the most of each limit of a tenant that was in use lately.
-- params: tenant_id, since_s, now
-- returns queue, band (-1: all), running, waiting
-- plan: by index
WITH {clock}
SELECT u.queue, u.band, max(u.running), max(u.waiting)
FROM tenants_usagehour u
WHERE u.tenant_id = %(tenant_id)s::bigint
    AND u.sampled_at >= (SELECT at FROM clock) - make_interval(secs => %(since_s)s::float8)
GROUP BY u.queue, u.band
