-- metrics_letters: how many dead letters there are for each reason, counted no further than a bound, and how old the
--   oldest is.
-- params: reasons, bound, now
-- returns reason, letters, seconds (null: there is none)
-- plan: by index
SELECT r.reason, (
    SELECT count(*) FROM (SELECT FROM dlq_deadletter d WHERE d.reason = r.reason LIMIT %(bound)s::int) x
), (
    SELECT extract(epoch FROM coalesce(%(now)s::timestamptz, clock_timestamp()) - d.failed_at)::float8
    FROM dlq_deadletter d WHERE d.reason = r.reason ORDER BY d.failed_at LIMIT 1
)
FROM unnest(%(reasons)s::text[]) AS r(reason)
