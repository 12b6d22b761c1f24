-- sweep_reservations: free the places that dead processes hold. An insert that comes later is refused, and asks again.
-- params: limit, stale_s, now
-- returns how many rows were deleted.  locks: reservations, SKIP LOCKED: an insert under way keeps its own
WITH {clock},
    stale AS MATERIALIZED (
        SELECT v.id FROM tenants_reservation v
        WHERE v.made_at < (SELECT at FROM clock) - %(stale_s)s::int * interval '1 second'
        ORDER BY v.id LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    swept AS (DELETE FROM tenants_reservation v USING stale s WHERE v.id = s.id)
SELECT count(*) FROM stale
