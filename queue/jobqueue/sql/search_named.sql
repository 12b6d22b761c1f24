-- search_named: those of some jobs that fit a search: for jobs that a query names by id or key.
-- params: job_ids, state (null: any), before and above (ids; null: all), limit; what _search_fits reads
-- returns ids (newest first), window_to (null), is_last (true)
-- plan: by index
WITH fits AS MATERIALIZED (
        SELECT l.id FROM unnest(%(job_ids)s::bigint[]) AS o(id)
        {search_job}
        WHERE (%(before)s::bigint IS NULL OR l.id < %(before)s::bigint)
            AND {search_stands}
            AND {search_fits}
        ORDER BY l.id DESC LIMIT %(limit)s::int
    )
SELECT (SELECT coalesce(array_agg(id ORDER BY id DESC), '{}') FROM fits), NULL::bigint, true
