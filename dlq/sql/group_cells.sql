-- group_cells: how many dead letters of some errors failed in each of some spans of time.
-- params: fingerprints, start (of the first span), width_s, spans, lanes_max (that are looked into), cap (newest dead
--   letters of an error that are counted in a lane); tenant_id, queue_ids
-- returns fingerprint, the span's number from 1, count, is_cut (there may be more), of spans that have any
-- plan: by index
WITH RECURSIVE {dead_lanes},
    lane AS MATERIALIZED (
        SELECT l.* FROM candidate l WHERE {in_scope} LIMIT %(lanes_max)s::int + 1
    ),
    pair AS MATERIALIZED (
        SELECT f.fingerprint, d.instants
        FROM lane l CROSS JOIN unnest(%(fingerprints)s::text[]) AS f(fingerprint)
        CROSS JOIN LATERAL (
            SELECT array_agg(n.failed_at) AS instants FROM (
                SELECT d.failed_at FROM dlq_deadletter d
                WHERE d.lane_id = l.id AND d.fingerprint = f.fingerprint AND d.failed_at >= %(start)s::timestamptz
                    AND d.failed_at < %(start)s::timestamptz
                        + %(width_s)s::int * %(spans)s::int * interval '1 second'
                ORDER BY d.failed_at DESC LIMIT %(cap)s::int + 1
            ) n
        ) d
        WHERE d.instants IS NOT NULL
    ),
    whole AS (
        SELECT fingerprint, bool_or(cardinality(instants) > %(cap)s::int)
            OR (SELECT count(*) > %(lanes_max)s::int FROM lane) AS is_cut
        FROM pair GROUP BY fingerprint
    ),
    cell AS (
        SELECT p.fingerprint,
            1 + floor(extract(epoch FROM i.at - %(start)s::timestamptz) / %(width_s)s::int)::int AS span,
            count(*) AS failed
        FROM pair p CROSS JOIN unnest(p.instants) AS i(at)
        GROUP BY 1, 2
    )
SELECT c.fingerprint, c.span, c.failed, w.is_cut FROM cell c JOIN whole w ON w.fingerprint = c.fingerprint
