-- dead_letters_of_lanes: a page of the dead letters of a tenant, queue, kind or error, newest first.
-- params: before_at and before_id (null: from the newest), queue_id, reason, kind, fingerprint, failed_before,
--   limit; tenant_id, queue_ids
-- returns what dead_letters returns. It looks into each lane along an index, and at nothing of other lanes.
WITH found AS MATERIALIZED (
        SELECT f.failed_at, f.job_id
        FROM queue_lane l
        CROSS JOIN LATERAL (
            SELECT d.failed_at, d.job_id FROM dlq_deadletter d
            WHERE d.lane_id = l.id
                AND (%(before_at)s::timestamptz IS NULL
                     OR (d.failed_at, d.job_id) < (%(before_at)s::timestamptz, %(before_id)s::bigint))
                AND (%(failed_before)s::timestamptz IS NULL OR d.failed_at < %(failed_before)s::timestamptz)
                AND (%(reason)s::text IS NULL OR d.reason = %(reason)s::text)
                AND (%(fingerprint)s::text IS NULL OR d.fingerprint = %(fingerprint)s::text)
            ORDER BY d.failed_at DESC, d.job_id DESC LIMIT %(limit)s::int
        ) f
        WHERE (%(queue_id)s::bigint IS NULL OR l.queue_id = %(queue_id)s::bigint)
            AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
            AND {in_scope}
        ORDER BY f.failed_at DESC, f.job_id DESC LIMIT %(limit)s::int
    )
SELECT {dead_letter}
FROM found o
JOIN dlq_deadletter d ON d.job_id = o.job_id
{dead_letter_joins}
ORDER BY d.failed_at DESC, d.job_id DESC
