-- purge_classes: forget classes of claims that have not asked for a day.
-- params: limit, now
-- returns how many were forgotten.  locks: the rows, SKIP LOCKED
WITH {clock},
    old AS MATERIALIZED (
        SELECT c.queue_id, c.claim_class FROM queue_claimclass c
        WHERE c.seen_at < (SELECT at FROM clock) - interval '1 day'
        LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    forgotten AS (
        DELETE FROM queue_claimclass c USING old o
        WHERE c.queue_id = o.queue_id AND c.claim_class = o.claim_class
        RETURNING c.queue_id
    )
SELECT count(*) FROM forgotten
