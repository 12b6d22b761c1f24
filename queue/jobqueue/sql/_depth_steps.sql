edge AS MATERIALIZED (  -- where the bound was reached, the oldest minute may lack rows
        SELECT CASE WHEN count(*) >= %(rows_max)s::int THEN min(d.minute) ELSE (SELECT at FROM since) END AS minute
        FROM depths d
    ),
    whole AS MATERIALIZED (  -- each round is looked up by its key: joined as sets, all would be compared with all
        SELECT d.minute, d.queue_id, d.priority, d.ready, d.age_s, d.is_capped
        FROM depths d JOIN queue_depthround r ON r.minute = d.minute AND r.is_over
        WHERE d.minute > (SELECT minute FROM edge)
        UNION ALL
        SELECT r.minute, NULL, NULL, NULL, NULL, false
        FROM queue_depthround r WHERE r.minute > (SELECT minute FROM edge) AND r.is_over
    )
SELECT to_timestamp(floor(extract(epoch FROM w.minute) / %(step_s)s::int) * %(step_s)s::int) AS step,
    w.queue_id, w.priority, max(w.ready), max(w.age_s)::float8, bool_or(w.is_capped)
FROM whole w
GROUP BY 1, 2, 3
