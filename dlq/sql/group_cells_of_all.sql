-- group_cells_of_all: as group_cells, of all tenants and queues together: along the index of errors.
-- params: fingerprints, start (of the first span), width_s, spans, cap (dead letters of an error and span that are counted)
-- returns fingerprint, the span's number from 1, count, is_cut (there are more), of spans that have any
-- plan: by index
SELECT f.fingerprint, s.span, least(c.failed, %(cap)s::int), c.failed > %(cap)s::int
FROM unnest(%(fingerprints)s::text[]) AS f(fingerprint)
CROSS JOIN generate_series(1, %(spans)s::int) AS s(span)
CROSS JOIN LATERAL (
    SELECT count(*) AS failed FROM (
        SELECT FROM dlq_deadletter d
        WHERE d.fingerprint = f.fingerprint
            AND d.failed_at >= %(start)s::timestamptz + (s.span - 1) * %(width_s)s::int * interval '1 second'
            AND d.failed_at < %(start)s::timestamptz + s.span * %(width_s)s::int * interval '1 second'
        LIMIT %(cap)s::int + 1
    ) x
) c
WHERE c.failed > 0
