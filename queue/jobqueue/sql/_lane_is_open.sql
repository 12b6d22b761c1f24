(c.gated_until IS NULL OR c.gated_until <= (SELECT at FROM clock))
                AND (c.dependency = '' OR NOT EXISTS (
                    SELECT FROM queue_dependencystate d
                    WHERE d.name = c.dependency AND (d.breaker = 'open' OR d.is_held_open OR d.probe_job_id IS NOT NULL
                        OR d.id = ANY(coalesce(
                            nullif(current_setting('jobsplatform.shut_dependencies', true), ''), '{}')::bigint[]))
                ))
