-- reserve: spend from these allowances, and hold places for the jobs that were admitted.
-- params: ids, tokens, rooms, counted_for, is_counted (one an allowance: what is left, and whether it was counted now);
--   tenant_ids, queues, bands, jobs (one a reservation); at
-- returns each reservation's id and scope.  run under allowance_lock
-- plan: by index
WITH spent AS (
        UPDATE tenants_allowance a
        SET tokens = u.tokens, filled_at = %(at)s::timestamptz, room = u.room, counted_for = u.counted_for,
            counted_at = CASE WHEN u.is_counted THEN %(at)s::timestamptz ELSE a.counted_at END
        FROM unnest(
            %(ids)s::bigint[], %(tokens)s::float8[], %(rooms)s::bigint[], %(counted_for)s::bigint[],
            %(is_counted)s::bool[]
        ) AS u(id, tokens, room, counted_for, is_counted)
        WHERE a.id = u.id
    )
INSERT INTO tenants_reservation (tenant_id, queue, band, jobs, made_at)
SELECT tenant_id, queue, band, jobs, %(at)s::timestamptz
FROM unnest(%(tenant_ids)s::bigint[], %(queues)s::text[], %(bands)s::smallint[], %(jobs)s::int[])
    AS r(tenant_id, queue, band, jobs)
RETURNING id, tenant_id, queue, band
