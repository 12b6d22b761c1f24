-- purge_states: forget scheduler states of a day ago whose class of claims was forgotten: it begins anew if it comes back.
-- A queue's newest state stays: it tells the queue's virtual time.
-- params: limit, now
-- returns how many were forgotten.  locks: the rows, SKIP LOCKED
WITH {clock},
    old AS MATERIALIZED (
        SELECT s.id FROM queue_schedulerstate s
        WHERE s.at < (SELECT at FROM clock) - interval '1 day'
            AND NOT EXISTS (
                SELECT FROM queue_claimclass c WHERE c.queue_id = s.queue_id AND c.claim_class = s.claim_class
            )
            AND s.id < (SELECT max(n.id) FROM queue_schedulerstate n WHERE n.queue_id = s.queue_id)
        ORDER BY s.id LIMIT %(limit)s::int
        FOR UPDATE OF s SKIP LOCKED
    ),
    forgotten AS (DELETE FROM queue_schedulerstate s USING old o WHERE s.id = o.id RETURNING s.id)
SELECT count(*) FROM forgotten
