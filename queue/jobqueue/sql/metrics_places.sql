-- metrics_places: about how many rows stand in each of these tables, as the server's statistics have it; and, in each
--   row, how many lanes are active beyond those that are looked into, and how far the ledger is behind.
-- params: tables, lanes_max, now
-- returns table, rows, lanes, seconds since the oldest ledger row that is not folded
-- plan: by index
WITH {clock},
    whole AS MATERIALIZED (
        SELECT greatest(0, (SELECT count(*) FROM queue_lane l WHERE l.is_active) - %(lanes_max)s::int)::float8 AS lanes,
            greatest(0, extract(epoch FROM
                k.at - coalesce((SELECT d.at FROM queue_lanedelta d ORDER BY d.id LIMIT 1), k.at)))::float8 AS behind_s
        FROM clock k
    )
SELECT s.relname::text, s.n_live_tup::float8, w.lanes, w.behind_s
FROM whole w CROSS JOIN pg_stat_user_tables s
WHERE s.relname = ANY(%(tables)s::text[]) AND s.schemaname = current_schema()
