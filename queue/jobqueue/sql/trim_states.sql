-- trim_states: forget scheduler states that are not the newest of their queue, class and part.
-- params: limit
-- returns how many were forgotten.  locks: the rows, SKIP LOCKED
-- plan: by index
WITH old AS MATERIALIZED (
        SELECT s.id FROM queue_schedulerstate s
        WHERE EXISTS (
            SELECT FROM queue_schedulerstate n
            WHERE n.queue_id = s.queue_id AND n.claim_class = s.claim_class AND n.part = s.part AND n.id > s.id
        )
        ORDER BY s.id LIMIT %(limit)s::int
        FOR UPDATE SKIP LOCKED
    ),
    trimmed AS (DELETE FROM queue_schedulerstate s USING old o WHERE s.id = o.id RETURNING s.id)
SELECT count(*) FROM trimmed
