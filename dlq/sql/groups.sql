-- groups: dead letters by the fingerprint of their error, latest first, each counted up to a cap.
-- params: before_at and before_print (null: from the latest), pairs_max, cap, limit; tenant_id, queue_ids
-- returns fingerprint, error_class, sample, count (cap + 1: more), first_seen, last_seen, kinds, tenant_ids, is_cut
--   (there may be more pairs than were looked at)
-- A lane's errors are walked from one to the next along an index: the cost grows with how many differ, not with how
-- many dead letters there are; at most `pairs_max` (lane, error) pairs are looked at, of all lanes alike.
WITH RECURSIVE {dead_lanes},
    lane AS MATERIALIZED (SELECT l.* FROM candidate l WHERE {in_scope}),
    pair AS MATERIALIZED (
        -- Round by round, one more error of each lane: where the walk is cut, no lane has hidden another's.
        WITH RECURSIVE walk AS (
            SELECT l.id AS lane_id, l.tenant_id, l.kind, e.fingerprint
            FROM lane l CROSS JOIN LATERAL (
                SELECT d.fingerprint FROM dlq_deadletter d WHERE d.lane_id = l.id ORDER BY d.fingerprint LIMIT 1
            ) e
            UNION ALL
            SELECT w.lane_id, w.tenant_id, w.kind, e.fingerprint
            FROM walk w CROSS JOIN LATERAL (
                SELECT d.fingerprint FROM dlq_deadletter d
                WHERE d.lane_id = w.lane_id AND d.fingerprint > w.fingerprint ORDER BY d.fingerprint LIMIT 1
            ) e
        )
        SELECT lane_id, tenant_id, kind, fingerprint FROM walk LIMIT %(pairs_max)s::int
    ),
    dated AS MATERIALIZED (
        SELECT p.*, (
            SELECT d.failed_at FROM dlq_deadletter d WHERE d.lane_id = p.lane_id AND d.fingerprint = p.fingerprint
            ORDER BY d.failed_at LIMIT 1
        ) AS first_seen, (
            SELECT d.failed_at FROM dlq_deadletter d WHERE d.lane_id = p.lane_id AND d.fingerprint = p.fingerprint
            ORDER BY d.failed_at DESC LIMIT 1
        ) AS last_seen
        FROM pair p
    ),
    grouped AS MATERIALIZED (
        SELECT fingerprint, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
            array_agg(DISTINCT kind) AS kinds, array_agg(DISTINCT tenant_id) AS tenant_ids
        FROM dated GROUP BY fingerprint
        HAVING %(before_at)s::timestamptz IS NULL
            OR (max(last_seen), fingerprint) < (%(before_at)s::timestamptz, %(before_print)s::text)
        ORDER BY 3 DESC, 1 DESC LIMIT %(limit)s::int
    )
SELECT g.fingerprint, s.error_class, s.sample, (
        SELECT count(*) FROM (
            SELECT 1 FROM pair p JOIN dlq_deadletter d ON d.lane_id = p.lane_id AND d.fingerprint = p.fingerprint
            WHERE p.fingerprint = g.fingerprint LIMIT %(cap)s::int + 1
        ) c
    ) AS count, g.first_seen, g.last_seen, g.kinds, g.tenant_ids,
    (SELECT count(*) FROM pair) >= %(pairs_max)s::int AS is_cut
FROM grouped g
CROSS JOIN LATERAL (
    SELECT d.error_class, left(d.message, 500) AS sample
    FROM dated p JOIN dlq_deadletter d ON d.lane_id = p.lane_id AND d.fingerprint = p.fingerprint
        AND d.failed_at = p.last_seen
    WHERE p.fingerprint = g.fingerprint AND p.last_seen = g.last_seen
    ORDER BY d.job_id DESC LIMIT 1
) s
ORDER BY g.last_seen DESC, g.fingerprint DESC
