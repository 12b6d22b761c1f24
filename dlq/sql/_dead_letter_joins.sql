JOIN queue_job l ON l.id = d.job_id
LEFT JOIN LATERAL (
    SELECT x.job_id, x.payload, x.payload_ref FROM dlq_correction x
    WHERE x.job_id = d.job_id ORDER BY x.version DESC LIMIT 1
) c ON true
