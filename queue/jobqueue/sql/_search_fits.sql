-- What a search asks of a job `l` whose last error is told by its attempts.
    (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
        AND (%(queue_ids)s::bigint[] IS NULL OR l.queue_id = ANY(%(queue_ids)s::bigint[]))
        AND (%(queue_id)s::bigint IS NULL OR l.queue_id = %(queue_id)s::bigint)
        AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
        AND (%(first_band)s::smallint IS NULL OR l.priority BETWEEN %(first_band)s::smallint AND %(last_band)s::smallint)
        AND (%(created_before)s::timestamptz IS NULL OR l.created_at < %(created_before)s::timestamptz)
        AND (%(created_after)s::timestamptz IS NULL OR l.created_at > %(created_after)s::timestamptz)
        AND (%(error_class)s::text IS NULL AND %(error_text)s::text IS NULL OR EXISTS (
            SELECT FROM (
                SELECT a.error_class, a.message FROM queue_attempt a
                WHERE a.job_id = l.id AND a.error_class IS NOT NULL
                ORDER BY a.generation DESC LIMIT 1
            ) e
            WHERE (%(error_class)s::text IS NULL OR e.error_class = %(error_class)s::text)
                AND (%(error_text)s::text IS NULL OR strpos(lower(e.message), lower(%(error_text)s::text)) > 0)
        ))
