-- search_jobs: jobs of any state, or that have ended, newest first, of which a window is looked at. Of one tenant: in any
-- state, and no other tenant's jobs are looked at, so that nothing of theirs shows by where a window ends.
-- params: state (null: any; without a tenant: one that ends a job), before and above (ids; null: all), window, limit; what
--   _search_fits reads
-- returns ids, window_to (the last id looked at), is_last (nothing older is left to look at)
-- plan: by index
WITH of_tenant AS MATERIALIZED (
        SELECT l.id FROM queue_job l
        WHERE l.tenant_id = %(tenant_id)s::bigint
            AND l.id < coalesce(%(before)s::bigint, 9223372036854775807) AND l.id > coalesce(%(above)s::bigint, 0)
        ORDER BY l.id DESC LIMIT %(window)s::int
    ),
    of_all AS MATERIALIZED (
        SELECT l.id FROM queue_job l
        WHERE %(tenant_id)s::bigint IS NULL AND %(state)s::text IS NULL
            AND l.id < coalesce(%(before)s::bigint, 9223372036854775807) AND l.id > coalesce(%(above)s::bigint, 0)
        ORDER BY l.id DESC LIMIT %(window)s::int
    ),
    succeeded AS MATERIALIZED (
        SELECT f.job_id FROM queue_result f
        WHERE %(tenant_id)s::bigint IS NULL AND %(state)s::text = 'succeeded'
            AND f.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
            AND f.job_id > coalesce(%(above)s::bigint, 0)
        ORDER BY f.job_id DESC LIMIT %(window)s::int
    ),
    rare AS MATERIALIZED (
        SELECT f.job_id FROM queue_result f
        WHERE %(tenant_id)s::bigint IS NULL AND f.outcome <> 'succeeded' AND f.outcome = %(state)s::text
            AND f.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
            AND f.job_id > coalesce(%(above)s::bigint, 0)
        ORDER BY f.job_id DESC LIMIT %(window)s::int
    ),
    looked AS MATERIALIZED (
        SELECT id FROM of_tenant UNION ALL SELECT id FROM of_all UNION ALL SELECT job_id FROM succeeded
        UNION ALL SELECT job_id FROM rare
    ),
    edge AS MATERIALIZED (SELECT min(id) AS window_to, count(*) < %(window)s::int AS is_last FROM looked),
    fits AS MATERIALIZED (
        SELECT l.id
        FROM looked o
        {search_job}
        WHERE {search_stands}
            AND {search_fits}
        ORDER BY o.id DESC LIMIT %(limit)s::int
    )
SELECT (SELECT coalesce(array_agg(id ORDER BY id DESC), '{}') FROM fits), e.window_to, e.is_last FROM edge e
