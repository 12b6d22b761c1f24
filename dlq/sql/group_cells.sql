-- group_cells: how many dead letters of some errors failed in each of some spans of time, each counted up to a cap.
-- params: fingerprints, starts (instants, rising), width_s, cap; tenant_id, queue_ids
-- returns fingerprint, ord of the span, count (cap + 1: more), of spans that have any
WITH RECURSIVE {dead_lanes},
    lane AS MATERIALIZED (SELECT l.* FROM candidate l WHERE {in_scope}),
    pair AS MATERIALIZED (
        SELECT l.id AS lane_id, f.fingerprint
        FROM lane l CROSS JOIN unnest(%(fingerprints)s::text[]) AS f(fingerprint)
        WHERE EXISTS (SELECT FROM dlq_deadletter d WHERE d.lane_id = l.id AND d.fingerprint = f.fingerprint)
    ),
    cell AS (
        SELECT f.fingerprint, s.ord, (
            SELECT count(*) FROM (
                SELECT 1 FROM pair p JOIN dlq_deadletter d ON d.lane_id = p.lane_id AND d.fingerprint = p.fingerprint
                    AND d.failed_at >= s.since AND d.failed_at < s.since + %(width_s)s::int * interval '1 second'
                WHERE p.fingerprint = f.fingerprint LIMIT %(cap)s::int + 1
            ) c
        ) AS failed
        FROM unnest(%(fingerprints)s::text[]) AS f(fingerprint)
        CROSS JOIN unnest(%(starts)s::timestamptz[]) WITH ORDINALITY AS s(since, ord)
    )
SELECT fingerprint, ord, failed FROM cell WHERE failed > 0
