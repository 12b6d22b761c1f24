-- doctor_server: what a server says of itself that the guarantees and the speed rest on.
-- returns one row; standbys is null where the role may not see them
-- locks: none
SELECT current_setting('server_version') AS version,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS is_read_only,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('autovacuum') AS autovacuum,
    extract(epoch FROM clock_timestamp())::float8 AS clock,
    current_setting('max_connections')::int AS connections_max,
    (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    age((SELECT datfrozenxid FROM pg_database WHERE datname = current_database())) AS xid_age,
    current_setting('autovacuum_freeze_max_age')::int AS xid_age_max,
    current_setting('synchronous_standby_names') AS standbys_wanted,
    CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN
        (SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
    END AS standbys
