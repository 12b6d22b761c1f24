-- campaign_redrive: dead letters that this transaction holds go back into the schedule.
-- params: job_ids, audit_ids (one a job), note, actor, call_hash, campaign_id, now; redrive_key, not_before and
--   max_attempts are null
-- returns job_id
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
    held AS MATERIALIZED (
        SELECT d.job_id, k.at, d.deadline AS ends_at, false AS is_delayed, a.audit_id,
            coalesce((SELECT max(c.version) FROM dlq_correction c WHERE c.job_id = d.job_id), 0) AS payload_version
        FROM unnest(%(job_ids)s::bigint[], %(audit_ids)s::bigint[]) AS a(job_id, audit_id)
        JOIN dlq_deadletter d ON d.job_id = a.job_id
        CROSS JOIN clock k
    ),
    {sent_back}
SELECT job_id FROM moved
