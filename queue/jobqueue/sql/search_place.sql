-- search_place: jobs that wait, run or are dead, newest first: all of some lanes where they are few, else a window.
-- params: state, lane_ids (null: every lane), before and above (ids; null: all), few (jobs of the lanes that are taken
--   whole), walks (whether a window is looked at where they are not few), window (jobs looked at then), limit; reason,
--   fingerprint; what _search_fits reads
-- returns ids, window_to (the last id looked at), is_last (nothing older is left to look at), are_few
-- plan: by index
WITH few AS MATERIALIZED (
        SELECT p.job_id, p.lane_id
        FROM unnest(%(lane_ids)s::bigint[]) AS x(id)
        CROSS JOIN LATERAL (
            SELECT f.job_id, f.lane_id FROM ({search_places}) f WHERE f.lane_id = x.id LIMIT %(few)s::int + 1
        ) p
        LIMIT %(few)s::int + 1
    ),
    chosen AS MATERIALIZED (
        SELECT %(lane_ids)s::bigint[] IS NOT NULL AND count(*) <= %(few)s::int AS are_few FROM few
    ),
    walked AS MATERIALIZED (  -- each along its own index: over their union the planner would sort
        (
            SELECT w.job_id, w.lane_id FROM queue_readyjob w
            WHERE %(state)s::text = 'ready' AND %(walks)s::boolean AND NOT (SELECT are_few FROM chosen)
                AND w.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
                AND w.job_id > coalesce(%(above)s::bigint, 0)
            ORDER BY w.job_id DESC LIMIT %(window)s::int
        )
        UNION ALL
        (
            SELECT w.job_id, w.lane_id FROM queue_scheduledjob w
            WHERE %(state)s::text = 'scheduled' AND %(walks)s::boolean AND NOT (SELECT are_few FROM chosen)
                AND w.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
                AND w.job_id > coalesce(%(above)s::bigint, 0)
            ORDER BY w.job_id DESC LIMIT %(window)s::int
        )
        UNION ALL
        (
            SELECT w.job_id, w.lane_id FROM queue_lease w
            WHERE %(state)s::text = 'running' AND %(walks)s::boolean AND NOT (SELECT are_few FROM chosen)
                AND w.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
                AND w.job_id > coalesce(%(above)s::bigint, 0)
            ORDER BY w.job_id DESC LIMIT %(window)s::int
        )
        UNION ALL
        (
            SELECT w.job_id, w.lane_id FROM dlq_deadletter w
            WHERE %(state)s::text = 'dead' AND %(walks)s::boolean AND NOT (SELECT are_few FROM chosen)
                AND w.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
                AND w.job_id > coalesce(%(above)s::bigint, 0)
            ORDER BY w.job_id DESC LIMIT %(window)s::int
        )
    ),
    looked AS MATERIALIZED (
        SELECT f.job_id AS id FROM few f
        WHERE (SELECT are_few FROM chosen)
            AND f.job_id < coalesce(%(before)s::bigint, 9223372036854775807)
            AND f.job_id > coalesce(%(above)s::bigint, 0)
        UNION ALL
        -- A set, not an array: under a plan for any parameters each row would be compared with every lane.
        SELECT w.job_id FROM walked w
        WHERE %(lane_ids)s::bigint[] IS NULL
            OR w.lane_id IN (SELECT x.id FROM unnest(%(lane_ids)s::bigint[]) AS x(id))
    ),
    edge AS MATERIALIZED (SELECT min(job_id) AS window_to, count(*) < %(window)s::int AS is_last FROM walked),
    fits AS MATERIALIZED (
        SELECT l.id
        FROM looked o
        {search_job}
        WHERE {search_fits}
            AND (%(reason)s::text IS NULL AND %(fingerprint)s::text IS NULL OR (
                SELECT true FROM dlq_deadletter d WHERE d.job_id = o.id
                    AND (%(reason)s::text IS NULL OR d.reason = %(reason)s::text)
                    AND (%(fingerprint)s::text IS NULL OR d.fingerprint = %(fingerprint)s::text)
            ))
        ORDER BY o.id DESC LIMIT %(limit)s::int
    )
SELECT (SELECT coalesce(array_agg(id ORDER BY id DESC), '{}') FROM fits), e.window_to, e.is_last, c.are_few
FROM edge e CROSS JOIN chosen c
