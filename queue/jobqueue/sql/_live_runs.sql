(
        SELECT coalesce(array_agg(u.job_id ORDER BY u.place), '{}') AS live
        FROM unnest(a.runs) WITH ORDINALITY AS u(job_id, place)
        WHERE EXISTS (SELECT FROM queue_readyjob x WHERE x.job_id = u.job_id)
            OR EXISTS (SELECT FROM queue_scheduledjob x WHERE x.job_id = u.job_id)
            OR EXISTS (SELECT FROM queue_lease x WHERE x.job_id = u.job_id)
    )
