SELECT job_id, lane_id FROM queue_readyjob WHERE %(state)s::text = 'ready'
        UNION ALL
        SELECT job_id, lane_id FROM queue_scheduledjob WHERE %(state)s::text = 'scheduled'
        UNION ALL
        SELECT job_id, lane_id FROM queue_lease WHERE %(state)s::text = 'running'
        UNION ALL
        SELECT job_id, lane_id FROM dlq_deadletter WHERE %(state)s::text = 'dead'
