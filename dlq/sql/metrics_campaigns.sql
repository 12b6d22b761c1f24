-- metrics_campaigns: what campaigns have done on this shard since the beginning.
-- returns redriven, succeeded, failed, ended
SELECT coalesce(sum(c.redriven), 0)::bigint, coalesce(sum(c.succeeded), 0)::bigint, coalesce(sum(c.failed), 0)::bigint,
    coalesce(sum(c.ended), 0)::bigint
FROM dlq_campaignpart c
