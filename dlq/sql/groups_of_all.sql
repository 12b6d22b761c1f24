-- groups_of_all: as groups, of all tenants and queues together, where not many errors differ; or one of them.
-- params: fingerprint (null: a page), before_at and before_print (null: from the latest), errors_max, cap, sample_chars,
--   limit
-- returns as groups does; kinds and tenants are those of the newest dead letters that are counted
-- It walks from error to error along the index of errors: the cost grows with how many differ and with the cap.
-- plan: by index
WITH RECURSIVE error AS (
        (
            SELECT d.fingerprint, 1 AS place FROM dlq_deadletter d
            WHERE d.fingerprint >= coalesce(%(fingerprint)s::text, '') ORDER BY d.fingerprint LIMIT 1
        )
        UNION ALL
        SELECT n.fingerprint, e.place + 1 FROM error e CROSS JOIN LATERAL (
            SELECT d.fingerprint FROM dlq_deadletter d WHERE d.fingerprint > e.fingerprint ORDER BY d.fingerprint LIMIT 1
        ) n
        WHERE %(fingerprint)s::text IS NULL AND e.place < %(errors_max)s::int
    ),
    dated AS MATERIALIZED (
        SELECT e.fingerprint, (
            SELECT d.failed_at FROM dlq_deadletter d WHERE d.fingerprint = e.fingerprint ORDER BY d.failed_at LIMIT 1
        ) AS first_seen, (
            SELECT d.failed_at FROM dlq_deadletter d WHERE d.fingerprint = e.fingerprint
            ORDER BY d.failed_at DESC LIMIT 1
        ) AS last_seen
        FROM error e
        WHERE %(fingerprint)s::text IS NULL OR e.fingerprint = %(fingerprint)s::text
    ),
    chosen AS MATERIALIZED (
        SELECT g.fingerprint, g.first_seen, g.last_seen FROM dated g
        WHERE %(before_at)s::timestamptz IS NULL
            OR (g.last_seen, g.fingerprint) < (%(before_at)s::timestamptz, %(before_print)s::text)
        ORDER BY g.last_seen DESC, g.fingerprint DESC LIMIT %(limit)s::int
    )
SELECT g.fingerprint, s.error_class, s.sample, n.count, g.first_seen, g.last_seen, n.kinds, n.tenant_ids, false
FROM chosen g
CROSS JOIN LATERAL (
    SELECT d.error_class, left(d.message, %(sample_chars)s::int) AS sample FROM dlq_deadletter d
    WHERE d.fingerprint = g.fingerprint AND d.failed_at = g.last_seen
    ORDER BY d.job_id DESC LIMIT 1
) s
CROSS JOIN LATERAL (
    SELECT sum(b.jobs)::bigint AS count, array_agg(DISTINCT l.kind) AS kinds,
        array_agg(DISTINCT l.tenant_id) AS tenant_ids
    FROM (
        SELECT x.lane_id, count(*) AS jobs FROM (
            SELECT d.lane_id FROM dlq_deadletter d WHERE d.fingerprint = g.fingerprint
            ORDER BY d.failed_at DESC LIMIT %(cap)s::int + 1
        ) x GROUP BY x.lane_id
    ) b
    JOIN queue_lane l ON l.id = b.lane_id
) n
ORDER BY g.last_seen DESC, g.fingerprint DESC
