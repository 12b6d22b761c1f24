-- group_one: the dead letters of one error.
-- params: fingerprint, cap; tenant_id, queue_ids
-- returns as groups does; no row: there are none
WITH RECURSIVE {dead_lanes},
    lane AS MATERIALIZED (SELECT l.* FROM candidate l WHERE {in_scope}),
    dated AS MATERIALIZED (
        SELECT l.id AS lane_id, l.tenant_id, l.kind, (
            SELECT d.failed_at FROM dlq_deadletter d WHERE d.lane_id = l.id AND d.fingerprint = %(fingerprint)s::text
            ORDER BY d.failed_at LIMIT 1
        ) AS first_seen, (
            SELECT d.failed_at FROM dlq_deadletter d WHERE d.lane_id = l.id AND d.fingerprint = %(fingerprint)s::text
            ORDER BY d.failed_at DESC LIMIT 1
        ) AS last_seen
        FROM lane l
    ),
    whole AS (
        SELECT min(first_seen) AS first_seen, max(last_seen) AS last_seen, array_agg(DISTINCT kind) AS kinds,
            array_agg(DISTINCT tenant_id) AS tenant_ids
        FROM dated WHERE last_seen IS NOT NULL
        HAVING count(*) > 0
    )
SELECT %(fingerprint)s::text, s.error_class, s.sample, (
        SELECT count(*) FROM (
            SELECT 1 FROM dated p JOIN dlq_deadletter d ON d.lane_id = p.lane_id AND d.fingerprint = %(fingerprint)s::text
            LIMIT %(cap)s::int + 1
        ) c
    ), w.first_seen, w.last_seen, w.kinds, w.tenant_ids
FROM whole w
CROSS JOIN LATERAL (
    SELECT d.error_class, left(d.message, 8192) AS sample
    FROM dated p JOIN dlq_deadletter d ON d.lane_id = p.lane_id AND d.fingerprint = %(fingerprint)s::text
        AND d.failed_at = p.last_seen
    WHERE p.last_seen = w.last_seen
    ORDER BY d.job_id DESC LIMIT 1
) s
