-- errors_many: whether there are more errors with dead letters than a bound, whoever's.
-- params: errors_max
-- plan: by index
WITH RECURSIVE error AS (
        (SELECT d.fingerprint, 1 AS place FROM dlq_deadletter d ORDER BY d.fingerprint LIMIT 1)
        UNION ALL
        SELECT n.fingerprint, e.place + 1 FROM error e CROSS JOIN LATERAL (
            SELECT d.fingerprint FROM dlq_deadletter d WHERE d.fingerprint > e.fingerprint ORDER BY d.fingerprint LIMIT 1
        ) n
        WHERE e.place <= %(errors_max)s::int
    )
SELECT count(*) > %(errors_max)s::int FROM error
