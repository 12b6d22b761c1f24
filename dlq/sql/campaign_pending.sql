-- campaign_pending: campaigns of which some redrive's outcome is not known.
-- In any order, so that those whose jobs do not end (a paused queue, a long wait) do not hide others for ever.
-- params: limit
SELECT campaign_id FROM dlq_campaignpart WHERE redriven > succeeded + failed + ended
ORDER BY random() LIMIT %(limit)s::int
