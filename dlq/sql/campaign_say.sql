-- campaign_say: tell a campaign's part whether it may go on; waits for a batch that is under way.
-- params: campaign_id, version, is_open, is_canary_over
-- an older version never overrules a newer.  locks: the part
UPDATE dlq_campaignpart c
SET version = %(version)s::bigint, is_open = %(is_open)s::boolean,
    ceiling = CASE WHEN %(is_canary_over)s::boolean THEN NULL ELSE c.ceiling END
WHERE c.campaign_id = %(campaign_id)s::bigint AND c.version < %(version)s::bigint
