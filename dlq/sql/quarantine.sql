-- quarantine: give dead tickets their place; run in the transaction that took them out of theirs.
-- params: tickets (a JSON list of objects with the columns below)
INSERT INTO dlq_deadletter (
    job_id, lane_id, first_ready_at, deadline, generation, releases, attempt, max_attempts, crashes, lapses,
    payload_version, redrive_generation, reconcile, checkpoint, reason, failed_at, error_class, message, fingerprint
)
SELECT t.job_id, t.lane_id, t.first_ready_at, t.deadline, t.generation, t.releases, t.attempt, t.max_attempts,
    t.crashes, t.lapses, t.payload_version, t.redrive_generation, t.reconcile, t.checkpoint, t.reason, t.failed_at,
    t.error_class, t.message, t.fingerprint
FROM json_populate_recordset(NULL::dlq_deadletter, %(tickets)s::json) t
ORDER BY t.job_id
