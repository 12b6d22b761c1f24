-- campaign_pending: campaigns of which some redrive's outcome is not known.
-- params: limit
SELECT campaign_id FROM dlq_campaignpart WHERE redriven > succeeded + failed + ended
ORDER BY campaign_id LIMIT %(limit)s::int
