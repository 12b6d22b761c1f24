-- dependency_due: dependencies of which something is to be judged: calls that nobody has counted, a breaker that is not
-- closed, a ramp.
-- params: failing (only where calls have failed)
-- plan: by index
SELECT d.name FROM queue_dependencystate d
WHERE EXISTS (
        SELECT FROM queue_dependencydelta x WHERE x.dependency = d.name AND (x.failed > 0 OR NOT %(failing)s::bool)
    )
    OR NOT %(failing)s::bool AND (d.breaker <> 'closed' OR d.ramp_from IS NOT NULL)
ORDER BY d.name
