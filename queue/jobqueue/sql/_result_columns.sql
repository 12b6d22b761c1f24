job_id, generation, attempt, crashes, redrive_generation, late, finished_at, outcome, payload_hash, body
