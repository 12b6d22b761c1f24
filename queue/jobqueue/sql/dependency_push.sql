-- dependency_push: a dependency's settings as control has them, never an older version over a newer. Where it stands stays.
-- params: name, version, max_running, rate_per_s, rate_burst, breaker_share, breaker_calls, breaker_window_s,
--   probe_after_s, ramp_per_s, ramp_s, is_held_open, is_shared (over several shards: it begins without a share)
-- returns its id; no row: a newer version is there.  locks: the row
INSERT INTO queue_dependencystate AS d (
    name, version, max_running, rate_per_s, rate_burst, breaker_share, breaker_calls, breaker_window_s, probe_after_s,
    ramp_per_s, ramp_s, is_held_open, limit_now, running_share, rate_share
)
VALUES (
    %(name)s::text, %(version)s::bigint, %(max_running)s::int, %(rate_per_s)s::float8, %(rate_burst)s::int,
    %(breaker_share)s::float8, %(breaker_calls)s::int, %(breaker_window_s)s::int, %(probe_after_s)s::int,
    %(ramp_per_s)s::int, %(ramp_s)s::int, %(is_held_open)s::bool, %(max_running)s::int,
    CASE WHEN %(is_shared)s::bool AND %(max_running)s::int IS NOT NULL THEN 0 END,
    CASE WHEN %(is_shared)s::bool AND %(rate_per_s)s::float8 IS NOT NULL THEN 0 END
)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, max_running = excluded.max_running, rate_per_s = excluded.rate_per_s,
    rate_burst = excluded.rate_burst, breaker_share = excluded.breaker_share, breaker_calls = excluded.breaker_calls,
    breaker_window_s = excluded.breaker_window_s, probe_after_s = excluded.probe_after_s,
    ramp_per_s = excluded.ramp_per_s, ramp_s = excluded.ramp_s, is_held_open = excluded.is_held_open,
    running_share = CASE WHEN excluded.running_share IS NOT NULL THEN coalesce(d.running_share, 0) END,
    rate_share = CASE WHEN excluded.rate_share IS NOT NULL THEN coalesce(d.rate_share, 0) END,
    limit_now = CASE
        WHEN d.max_running IS NOT DISTINCT FROM excluded.max_running THEN d.limit_now
        WHEN excluded.max_running IS NULL THEN NULL
        ELSE least(coalesce(d.limit_now, excluded.max_running), excluded.max_running)
    END
WHERE d.version <= excluded.version
RETURNING d.id
