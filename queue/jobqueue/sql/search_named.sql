-- search_named: those of some jobs that fit a search: for jobs that a query names by id or key.
-- params: job_ids, state (null: any), before and above (ids; null: all), limit; what _search_fits reads
-- returns ids (newest first), window_to (null), is_last (true)
-- plan: by index
WITH fits AS MATERIALIZED (
        SELECT l.id FROM unnest(%(job_ids)s::bigint[]) AS x(id) JOIN queue_job l ON l.id = x.id
        WHERE (%(before)s::bigint IS NULL OR l.id < %(before)s::bigint)
            AND (%(state)s::text IS NULL
                OR %(state)s::text = 'running' AND EXISTS (SELECT FROM queue_lease p WHERE p.job_id = l.id)
                OR %(state)s::text = 'ready' AND EXISTS (SELECT FROM queue_readyjob p WHERE p.job_id = l.id)
                OR %(state)s::text = 'scheduled' AND EXISTS (SELECT FROM queue_scheduledjob p WHERE p.job_id = l.id)
                OR %(state)s::text = 'dead' AND EXISTS (
                    SELECT FROM dlq_deadletter p WHERE p.job_id = l.id
                        AND (%(reason)s::text IS NULL OR p.reason = %(reason)s::text)
                        AND (%(fingerprint)s::text IS NULL OR p.fingerprint = %(fingerprint)s::text)
                )
                OR EXISTS (SELECT FROM queue_result p WHERE p.job_id = l.id AND p.outcome = %(state)s::text))
            AND {search_fits}
        ORDER BY l.id DESC LIMIT %(limit)s::int
    )
SELECT (SELECT coalesce(array_agg(id ORDER BY id DESC), '{}') FROM fits), NULL::bigint, true
