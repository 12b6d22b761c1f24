job_id, generation, attempt, redrive_generation, token_hash, call_hash, worker, claimed_at, ended_at, next_at,
        service_ms, outcome, led_to, reason, error_class, message,
        policy_version, chosen
