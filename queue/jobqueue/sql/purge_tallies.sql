-- purge_tallies: forget calls of dependencies, and attempts of queues, that no window reaches any more: two hours.
-- params: limit, now
-- returns how many rows were purged.  locks: the rows, SKIP LOCKED
-- plan: by index
WITH {clock},
    old_calls AS MATERIALIZED (
        SELECT t.dependency, t.bucket FROM queue_dependencytally t
        WHERE t.bucket < (SELECT at FROM clock) - interval '2 hours'
        ORDER BY t.bucket LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    calls AS (
        DELETE FROM queue_dependencytally t USING old_calls o
        WHERE t.dependency = o.dependency AND t.bucket = o.bucket
    ),
    old_seconds AS MATERIALIZED (
        SELECT s.queue_id, s.second FROM queue_queuesecond s
        WHERE s.second < (SELECT at FROM clock) - interval '2 hours'
        ORDER BY s.second LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    seconds AS (
        DELETE FROM queue_queuesecond s USING old_seconds o WHERE s.queue_id = o.queue_id AND s.second = o.second
    ),
    old_marks AS MATERIALIZED (
        SELECT m.id FROM queue_poisonmark m WHERE m.at < (SELECT at FROM clock) - interval '2 hours'
        ORDER BY m.id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
    ),
    marks AS (DELETE FROM queue_poisonmark m USING old_marks o WHERE m.id = o.id)
SELECT (SELECT count(*) FROM old_calls) + (SELECT count(*) FROM old_seconds) + (SELECT count(*) FROM old_marks)
