-- claim_keys: which of these keys have live leases.
-- params: claim_keys, token_id, queue_ids, now
-- returns the keys
-- plan: by index
WITH {clock}
SELECT k.claim_key FROM unnest(%(claim_keys)s::text[]) AS k(claim_key)
WHERE EXISTS (
    SELECT FROM queue_lease s JOIN queue_lane l ON l.id = s.lane_id
    WHERE s.claim_key = k.claim_key AND s.token_id IS NOT DISTINCT FROM %(token_id)s::bigint
        AND l.queue_id = ANY(%(queue_ids)s::bigint[]) AND s.expires_at > (SELECT at FROM clock)
)
