edge AS MATERIALIZED (  -- where the bound was reached, the oldest minute may lack rows
        SELECT CASE WHEN count(*) >= %(rows_max)s::int THEN min(d.minute) ELSE (SELECT at FROM since) END AS minute
        FROM depths d
    ),
    rounds AS MATERIALIZED (
        SELECT r.minute, to_timestamp(floor(extract(epoch FROM r.minute) / %(step_s)s::int) * %(step_s)s::int) AS step
        FROM queue_depthround r WHERE r.minute > (SELECT minute FROM edge) AND r.is_over
    )
SELECT r.step, NULL::bigint AS queue_id, NULL::smallint AS priority, NULL::bigint AS ready, NULL::float8 AS age_s,
    false AS is_capped
FROM rounds r GROUP BY r.step
UNION ALL
SELECT r.step, d.queue_id, d.priority, max(d.ready), max(d.age_s)::float8, bool_or(d.is_capped)
FROM rounds r JOIN depths d ON d.minute = r.minute
GROUP BY r.step, d.queue_id, d.priority
