NOT EXISTS (SELECT FROM queue_readyjob x WHERE x.lane_id = l.id)
    AND NOT EXISTS (SELECT FROM queue_scheduledjob x WHERE x.lane_id = l.id)
    AND NOT EXISTS (SELECT FROM queue_lease x WHERE x.lane_id = l.id)
    AND NOT EXISTS (SELECT FROM dlq_deadletter x WHERE x.lane_id = l.id)
