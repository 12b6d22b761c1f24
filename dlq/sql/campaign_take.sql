-- campaign_take: hold the next dead letters of a campaign, each with what is to become of it.
-- params: campaign_id, seen_to, window (ids looked at), batch (matches held); the filter; is_patched (each is corrected first); now
-- returns job_id, tenant_id, verdict (null: redrive), and of the whole look: window_to (the last id looked at),
--   is_last (the window reached the end), in order; one row with null job_id when nothing matched
-- locks: the dead letters, in id order; one that somebody else moves meanwhile is not among the rows
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
    looked AS MATERIALIZED (
        SELECT d.job_id FROM dlq_deadletter d WHERE d.job_id > %(seen_to)s::bigint
        ORDER BY d.job_id LIMIT %(window)s::int
    ),
    edge AS MATERIALIZED (
        SELECT max(job_id) AS window_to, count(*) < %(window)s::int AS is_last FROM looked
    ),
    matched AS MATERIALIZED (
        SELECT d.job_id, d.reason, d.redrive_generation, d.deadline, l.tenant_id, l.queue_id
        FROM looked o JOIN dlq_deadletter d ON d.job_id = o.job_id JOIN queue_lane l ON l.id = d.lane_id
        WHERE {chosen}
            AND NOT EXISTS (
                SELECT FROM dlq_redrive r WHERE r.job_id = d.job_id AND r.campaign_id = %(campaign_id)s::bigint
            )
        ORDER BY d.job_id LIMIT %(batch)s::int
        FOR UPDATE OF d
    ),
    judged AS (
        SELECT d.job_id, d.tenant_id, {verdict} AS verdict
        FROM matched d JOIN queue_policyrow p ON p.queue_id = d.queue_id CROSS JOIN clock k
    )
SELECT j.job_id, j.tenant_id, j.verdict, e.window_to, e.is_last
FROM edge e LEFT JOIN judged j ON true
ORDER BY j.job_id
