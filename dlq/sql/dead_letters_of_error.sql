-- dead_letters_of_error: a page of the dead letters of one error, whoever's, newest first.
-- params: fingerprint, before_at and before_id (null: from the newest), limit
-- returns what dead_letters returns
-- plan: by index
WITH found AS MATERIALIZED (
        SELECT d.failed_at, d.job_id FROM dlq_deadletter d
        WHERE d.fingerprint = %(fingerprint)s::text
            AND d.failed_at <= coalesce(%(before_at)s::timestamptz, (SELECT max(x.failed_at) FROM dlq_deadletter x))
            AND (%(before_at)s::timestamptz IS NULL
                 OR (d.failed_at, d.job_id) < (%(before_at)s::timestamptz, %(before_id)s::bigint))
        ORDER BY d.failed_at DESC, d.job_id DESC LIMIT %(limit)s::int
    )
SELECT {dead_letter}
FROM found o
JOIN dlq_deadletter d ON d.job_id = o.job_id
{dead_letter_joins}
ORDER BY d.failed_at DESC, d.job_id DESC
