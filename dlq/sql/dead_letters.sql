-- dead_letters: a page of dead letters, newest first, or one of them.
-- params: job_id (null: a page), before_at and before_id (null: from the newest), reason, failed_before, limit;
--   tenant_id, queue_ids
SELECT {dead_letter}
FROM dlq_deadletter d
{dead_letter_joins}
WHERE (%(job_id)s::bigint IS NULL OR d.job_id = %(job_id)s::bigint)
    AND (%(before_at)s::timestamptz IS NULL
         OR (d.failed_at, d.job_id) < (%(before_at)s::timestamptz, %(before_id)s::bigint))
    AND (%(failed_before)s::timestamptz IS NULL OR d.failed_at < %(failed_before)s::timestamptz)
    AND (%(reason)s::text IS NULL OR d.reason = %(reason)s::text)
    AND {in_scope}
ORDER BY d.failed_at DESC, d.job_id DESC
LIMIT %(limit)s::int
