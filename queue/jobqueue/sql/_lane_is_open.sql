(c.gated_until IS NULL OR c.gated_until <= (SELECT at FROM clock))
                AND (c.dependency = '' OR NOT EXISTS (
                    SELECT FROM dependency_rooms y WHERE y.name = c.dependency
                        AND (y.starts_left <= 0 OR y.id = ANY(%(busy_dependencies)s::bigint[]))
                ))
