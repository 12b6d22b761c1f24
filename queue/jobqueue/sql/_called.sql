-- What this statement's calls tell of dependencies: a row each, never an update in place.
    called AS (
        INSERT INTO queue_dependencydelta (dependency, at, started, succeeded, failed, overloaded, overloaded_from)
        SELECT l.dependency, min(c.at), sum(c.started), sum(c.succeeded), sum(c.failed), sum(c.overloaded),
            max(c.overloaded_from)
        FROM calls c JOIN queue_lane l ON l.id = c.lane_id
        WHERE l.dependency <> '' AND c.started + c.succeeded + c.failed > 0
        GROUP BY l.dependency
    )
