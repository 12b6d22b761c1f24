-- campaign_part: make a campaign's part on this shard, with a bounded count of what its filter chooses.
-- params: campaign_id, version, is_open, canary (redrives to begin with; null: no ceiling); the filter; limit
-- returns matches, is_capped.  no row: there is one already
WITH counted AS MATERIALIZED (
        SELECT count(*) AS matches FROM (
            SELECT 1 FROM dlq_deadletter d JOIN queue_lane l ON l.id = d.lane_id
            WHERE {chosen}
            LIMIT %(limit)s::int + 1
        ) m
    )
INSERT INTO dlq_campaignpart (
    campaign_id, version, is_open, ceiling, matches, is_capped, seen_to, is_exhausted, redriven, skipped, succeeded,
    failed, ended, tokens, filled_at, followed_to
)
SELECT %(campaign_id)s::bigint, %(version)s::bigint, %(is_open)s::boolean,
    CASE WHEN %(canary)s::int IS NOT NULL THEN least(matches, %(canary)s::int) END,
    least(matches, %(limit)s::int), matches > %(limit)s::int, 0, false, 0, '{}', 0, 0, 0, 0,
    %(frozen_at)s::timestamptz, 0
FROM counted
ON CONFLICT DO NOTHING
RETURNING matches, is_capped
