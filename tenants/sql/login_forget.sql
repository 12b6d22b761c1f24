-- login_forget: forget the attempts of a key, or all that no window holds any more.
-- database: control
-- params: key (null: old ones), window_s, limit, now
-- returns how many.  locks: their rows (SKIP LOCKED)
WITH gone AS (
        DELETE FROM tenants_loginattempt a
        USING (
            SELECT o.key FROM tenants_loginattempt o
            WHERE o.key = %(key)s::bytea
                OR (%(key)s::bytea IS NULL AND o.since < (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
                    - %(window_s)s::float8 * interval '1 second')
            ORDER BY o.key LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED
        ) o
        WHERE a.key = o.key
        RETURNING a.key
    )
SELECT count(*) FROM gone
