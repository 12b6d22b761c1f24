-- campaign_note: what a batch did, in the batch's own transaction.
-- params: campaign_id, seen_to, is_exhausted, redriven, skipped (JSON object: reason to count, added up), tokens, at
-- A campaign that is through has treated all that it matched: what somebody else redrove before it came is skipped.
WITH before AS MATERIALIZED (
        SELECT c.*, c.redriven + %(redriven)s::bigint AS redriven_now, (
            SELECT coalesce(jsonb_object_agg(reason, total), '{}') FROM (
                SELECT reason, sum(count::bigint) AS total FROM (
                    SELECT key AS reason, value AS count FROM jsonb_each_text(c.skipped)
                    UNION ALL
                    SELECT key, value FROM jsonb_each_text(%(skipped)s::jsonb)
                ) each_one GROUP BY reason
            ) summed
        ) AS skipped_now
        FROM dlq_campaignpart c WHERE c.campaign_id = %(campaign_id)s::bigint
    ),
    treated AS MATERIALIZED (
        SELECT b.*, b.redriven_now + coalesce(
            (SELECT sum(value::bigint) FROM jsonb_each_text(b.skipped_now)), 0
        ) AS treated FROM before b
    )
UPDATE dlq_campaignpart c
SET seen_to = %(seen_to)s::bigint, is_exhausted = %(is_exhausted)s::boolean, redriven = t.redriven_now,
    tokens = %(tokens)s::float8, filled_at = %(at)s::timestamptz,
    matches = greatest(t.matches, t.treated),
    is_capped = t.is_capped AND NOT %(is_exhausted)s::boolean,
    skipped = CASE WHEN %(is_exhausted)s::boolean AND t.matches > t.treated THEN
        t.skipped_now || jsonb_build_object('already_redriven', t.matches - t.treated) ELSE t.skipped_now END
FROM treated t WHERE c.campaign_id = t.campaign_id
