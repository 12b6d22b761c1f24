-- metrics_breakers: the dependencies whose breakers are not closed.
-- params: most
-- returns name, breaker
SELECT d.name, CASE WHEN d.is_held_open THEN 'open' ELSE d.breaker END
FROM queue_dependencystate d WHERE d.breaker <> 'closed' OR d.is_held_open ORDER BY d.name LIMIT %(most)s::int
