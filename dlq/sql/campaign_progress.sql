-- campaign_progress: how far campaigns have come on this shard.
-- params: campaign_ids
SELECT campaign_id, version, matches, is_capped, is_exhausted, redriven, skipped, succeeded, failed, ended, ceiling,
    is_exhausted OR coalesce(redriven >= ceiling, false) AS rests
FROM dlq_campaignpart WHERE campaign_id = ANY(%(campaign_ids)s::bigint[])
