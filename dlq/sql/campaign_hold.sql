-- campaign_hold: hold a campaign's part for a batch.
-- params: campaign_id, rate_per_s (of this shard), now
-- returns at, seen_to, allowance (redrives that rate and canary allow now), tokens.  no row: it may not go on, all is
-- done, or another dispatcher is at it
-- locks: the part, SKIP LOCKED; whoever closes a part waits for the batch
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
    held AS MATERIALIZED (
        SELECT c.* FROM dlq_campaignpart c
        WHERE c.campaign_id = %(campaign_id)s::bigint AND c.is_open AND NOT c.is_exhausted
        FOR UPDATE SKIP LOCKED
    ),
    filled AS (
        SELECT h.*, k.at AS at, least(
            h.tokens + greatest(extract(epoch FROM k.at - h.filled_at)::float8, 0) * %(rate_per_s)s::float8,
            greatest(%(rate_per_s)s::float8, 1)
        ) AS present
        FROM held h CROSS JOIN clock k
    )
SELECT at, seen_to, greatest(least(floor(present)::bigint, ceiling - redriven), 0), present FROM filled
