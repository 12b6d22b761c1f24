-- doctor_horizon: who keeps the server from forgetting dead rows, the oldest first.
-- returns who, detail, seconds: a session, a prepared transaction, a replication slot; no row when nobody does
-- locks: none
SELECT who, detail, seconds
FROM (
    SELECT 'session ' || pid AS who,
        concat_ws(', ', nullif(application_name, ''), usename, state, left(query, 60)) AS detail,
        extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
        age(backend_xmin) AS behind
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    UNION ALL
    SELECT 'prepared transaction ' || gid, concat_ws(', ', owner, database),
        extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
    FROM pg_prepared_xacts
    UNION ALL
    SELECT 'replication slot ' || slot_name, concat_ws(', ', plugin, CASE WHEN active THEN 'active' ELSE 'not active' END),
        NULL, greatest(age(xmin), age(catalog_xmin))
    FROM pg_replication_slots
    WHERE coalesce(xmin, catalog_xmin) IS NOT NULL
) found
ORDER BY behind DESC NULLS LAST
LIMIT 3
