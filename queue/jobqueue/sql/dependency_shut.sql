-- dependency_shut: which dependencies of a queue can start nothing now; `claim_heads` passes over their lanes, or they
-- would only hide others. Counted without a lock: `dependency_rooms` has the last word.
-- params: queue_id, busy (ids that other claims hold), now
-- returns how many dependencies of the queue are limited; their ids travel in a setting of this transaction
-- plan: by index
WITH {clock},
    limited AS MATERIALIZED (
        SELECT d.id FROM queue_dependencystate d
        WHERE (d.max_running IS NOT NULL OR d.rate_per_s IS NOT NULL OR d.ramp_from IS NOT NULL
                OR d.breaker = 'half_open')
            AND EXISTS (
                SELECT FROM queue_lane l
                WHERE l.dependency = d.name AND l.dependency <> '' AND l.queue_id = %(queue_id)s::bigint AND l.is_active
            )
    ),
    {dependency_rooms},
    shut AS (
        SELECT id FROM dependency_rooms WHERE starts_left <= 0
        UNION
        SELECT b.id FROM unnest(%(busy)s::bigint[]) AS b(id)
    )
SELECT (SELECT count(*) FROM limited),
    set_config('jobsplatform.shut_dependencies', '{' || coalesce(string_agg(id::text, ','), '') || '}', true)
FROM shut
