lane_id, first_ready_at, max_attempts, deadline, payload_version, redrive_generation
