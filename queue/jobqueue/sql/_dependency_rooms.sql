-- What may still start of each dependency in `limited`, as this statement sees it. The algebra is jobqueue.policy.limit's.
    dependency_facts AS MATERIALIZED (
        SELECT d.*, r.running, n.in_window, n.in_second, n.frees_at,
            extract(epoch FROM k.at - d.ramp_from)::float8 AS ramp_age_s
        FROM limited i
        CROSS JOIN clock k
        JOIN queue_dependencystate d ON d.id = i.id
        CROSS JOIN LATERAL (
            SELECT count(*) AS running FROM queue_lane l JOIN queue_lease s ON s.lane_id = l.id
            WHERE l.dependency = d.name AND l.dependency <> '' AND d.limit_now IS NOT NULL
        ) r
        CROSS JOIN LATERAL (
            SELECT coalesce(d.rate_burst, greatest(1, ceil(d.rate_per_s))) / d.rate_per_s * interval '1 second' AS span
        ) w
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(c.started) FILTER (WHERE c.at > k.at - w.span), 0) AS in_window,
                coalesce(sum(c.started) FILTER (WHERE c.at > k.at - interval '1 second'), 0) AS in_second,
                min(c.at) FILTER (WHERE c.at > k.at - w.span AND c.started > 0) + w.span AS frees_at
            FROM (
                SELECT t.bucket + interval '100 milliseconds' AS at, t.started FROM queue_dependencytally t
                WHERE t.dependency = d.name
                    AND t.bucket > k.at - greatest(w.span, interval '1 second') - interval '100 milliseconds'
                UNION ALL
                SELECT x.at, x.started FROM queue_dependencydelta x WHERE x.dependency = d.name
            ) c
            WHERE d.rate_per_s IS NOT NULL OR d.ramp_from IS NOT NULL
        ) n
    ),
    dependency_rooms AS MATERIALIZED (
        SELECT f.id, f.name, least(
            CASE WHEN f.is_held_open OR f.breaker = 'open' THEN 0
                WHEN f.breaker = 'half_open' THEN (f.probe_job_id IS NULL)::int END,
            CASE WHEN f.limit_now IS NOT NULL THEN greatest(0, floor(least(f.limit_now, f.running_share)) - f.running) END,
            CASE WHEN f.rate_per_s IS NOT NULL THEN
                greatest(0, coalesce(f.rate_share, f.rate_burst, greatest(1, ceil(f.rate_per_s))) - f.in_window) END,
            CASE WHEN f.ramp_age_s < f.ramp_s AND f.ramp_per_s IS NOT NULL THEN
                greatest(0, f.ramp_per_s * (1 + floor(greatest(0, f.ramp_age_s) / 5)) - f.in_second) END,
            1000000
        )::int AS starts_left
        FROM dependency_facts f
    )
