(coalesce(t.limits_intake, false) OR p.depth_limit IS NOT NULL)
                    AND NOT coalesce(a.reservation = 0 OR a.reservation IN (SELECT id FROM held), false)
