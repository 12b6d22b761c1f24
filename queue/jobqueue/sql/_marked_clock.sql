-- The transaction id comes before the clock: a position is never older than a horizon sample that counts its
-- transaction as ended (upkeep's lower bounds rely on it).
    mark AS MATERIALIZED (SELECT pg_current_xact_id() AS xid),
    clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at FROM mark WHERE xid IS NOT NULL
    )
