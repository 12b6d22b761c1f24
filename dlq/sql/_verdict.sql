CASE
        WHEN NOT %(is_patched)s::bool AND d.reason IN ('invalid', 'poison') AND NOT EXISTS (
            SELECT FROM dlq_correction c WHERE c.job_id = d.job_id AND c.redrive_generation = d.redrive_generation
        ) THEN 'correction_required'
        WHEN d.redrive_generation >= p.max_redrives THEN 'redrive_limit'
        WHEN d.deadline <= k.at THEN 'deadline_in_past'
    END
