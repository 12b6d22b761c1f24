-- login_attempt: count one more attempt of a key, from one on when its window has passed.
-- database: control
-- params: key, window_s, now
-- returns how many there were in the window, this one too, and the seconds until the window ends.  locks: its own row
INSERT INTO tenants_loginattempt AS a (key, count, since)
SELECT %(key)s::bytea, 1, k.at FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at) k
ON CONFLICT (key) DO UPDATE SET
    count = CASE WHEN a.since <= excluded.since - %(window_s)s::float8 * interval '1 second' THEN 1 ELSE a.count + 1 END,
    since = CASE WHEN a.since <= excluded.since - %(window_s)s::float8 * interval '1 second' THEN excluded.since
        ELSE a.since END
RETURNING a.count, extract(epoch FROM a.since - (SELECT coalesce(%(now)s::timestamptz, clock_timestamp())))::float8
    + %(window_s)s::float8
