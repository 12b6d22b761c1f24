poison_marks AS (
        INSERT INTO queue_poisonmark (tenant_id, kind, job_id, at)
        SELECT l.tenant_id, l.kind, e.job_id, e.at FROM ended e JOIN queue_lane l ON l.id = e.lane_id
        WHERE e.reason = 'poison'
    )
