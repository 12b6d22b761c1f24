(coalesce(t.limits_intake, false) OR p.depth_limit IS NOT NULL)
