{is_limited}
                    AND NOT coalesce(a.reservation = 0 OR a.reservation IN (SELECT id FROM held), false)
