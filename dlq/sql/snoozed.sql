-- snoozed: how many dead letters of some errors came lately, and since each was snoozed.
-- params: fingerprints, since and caps (of each), recent_s, lanes_max (that are looked into), now; tenant_id and
--   queue_ids are null
-- returns fingerprint, queue_id, recent, more (since the snooze); counted a lane up to the error's cap + 1
-- plan: by index
WITH RECURSIVE {dead_lanes},
    clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(recent_s)s::int * interval '1 second' AS at
    ),
    lane AS MATERIALIZED (SELECT l.* FROM candidate l WHERE {in_scope} LIMIT %(lanes_max)s::int)
SELECT f.fingerprint, l.queue_id, sum(n.recent)::bigint, sum(n.more)::bigint
FROM clock k CROSS JOIN lane l
CROSS JOIN unnest(%(fingerprints)s::text[], %(since)s::timestamptz[], %(caps)s::int[]) AS f(fingerprint, since, cap)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.failed_at >= k.at) AS recent, count(*) FILTER (WHERE x.failed_at > f.since) AS more
    FROM (
        SELECT d.failed_at FROM dlq_deadletter d
        WHERE d.lane_id = l.id AND d.fingerprint = f.fingerprint AND d.failed_at >= least(f.since, k.at)
        ORDER BY d.failed_at DESC LIMIT f.cap + 1
    ) x
) n
WHERE n.recent > 0 OR n.more > 0
GROUP BY f.fingerprint, l.queue_id
