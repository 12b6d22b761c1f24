-- dependency_stale: hold the states of dependencies that nobody has set and that no lane names.
-- params: limit
-- returns their ids.  locks: their rows in id order, SKIP LOCKED; who makes a lane of such a name waits, and makes both
SELECT d.id FROM queue_dependencystate d WHERE {unnamed} ORDER BY d.id LIMIT %(limit)s::int FOR UPDATE OF d SKIP LOCKED
