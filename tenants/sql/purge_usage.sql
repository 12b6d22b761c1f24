-- purge_usage: forget refusals and uses older than two days.
-- params: limit, now
-- returns how many rows were purged.  locks: rows of either, SKIP LOCKED
-- plan: by index
WITH {clock},
    minutes AS MATERIALIZED (
        SELECT m.tenant_id, m.queue, m.band, m.cause, m.minute FROM tenants_refusalminute m
        WHERE m.minute < (SELECT at FROM clock) - interval '2 days'
        ORDER BY m.minute LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    hours AS MATERIALIZED (
        SELECT u.tenant_id, u.queue, u.band, u.hour FROM tenants_usagehour u
        WHERE u.hour < (SELECT at FROM clock) - interval '2 days'
        ORDER BY u.hour LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    purged_minutes AS (
        DELETE FROM tenants_refusalminute m USING minutes d
        WHERE (m.tenant_id, m.queue, m.band, m.cause, m.minute) = (d.tenant_id, d.queue, d.band, d.cause, d.minute)
    ),
    purged_hours AS (
        DELETE FROM tenants_usagehour u USING hours d
        WHERE (u.tenant_id, u.queue, u.band, u.hour) = (d.tenant_id, d.queue, d.band, d.hour)
    )
SELECT (SELECT count(*) FROM minutes) + (SELECT count(*) FROM hours)
