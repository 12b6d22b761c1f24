-- campaign_preview: what a filter chooses, and what a campaign would do with it; a bounded count.
-- params: the filter; is_patched (each is corrected first); limit, now
-- returns verdict (null: would be redriven), count.  more than `limit` matches: the rest is not counted
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
    matched AS MATERIALIZED (
        SELECT d.job_id, d.reason, d.redrive_generation, d.deadline, l.queue_id
        FROM dlq_deadletter d JOIN queue_lane l ON l.id = d.lane_id
        WHERE {chosen}
        LIMIT %(limit)s::int
    )
SELECT {verdict} AS verdict, count(*)
FROM matched d JOIN queue_policyrow p ON p.queue_id = d.queue_id CROSS JOIN clock k
GROUP BY 1
