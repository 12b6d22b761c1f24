-- give_back: tokens of jobs that were admitted and then not stored: replays never count.
-- Room is not given back: who counts after the reservation has gone sees it already.
-- params: ids, counts (one an allowance).  locks: allowances in key order
-- plan: by index
WITH held AS MATERIALIZED (
        SELECT a.id, u.count
        FROM unnest(%(ids)s::bigint[], %(counts)s::int[]) AS u(id, count)
        JOIN tenants_allowance a ON a.id = u.id
        ORDER BY a.tenant_id, a.queue, a.band
        FOR UPDATE OF a
    )
UPDATE tenants_allowance a SET tokens = a.tokens + h.count FROM held h WHERE a.id = h.id
