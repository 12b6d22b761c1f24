-- message_leases: the lease tokens that receipts stand for: of messages that this API token received.
-- params: job_ids, generations (one a receipt), token_id (null: a local worker); tenant_id, queue_ids
-- returns ord, token.  no row: not received by this token, or no longer leased under this generation
-- plan: by index
SELECT c.ord, s.token
FROM unnest(%(job_ids)s::bigint[], %(generations)s::int[]) WITH ORDINALITY AS c(job_id, generation, ord)
JOIN queue_lease s ON s.job_id = c.job_id
JOIN queue_lane l ON l.id = s.lane_id
WHERE s.generation = c.generation AND s.token_id IS NOT DISTINCT FROM %(token_id)s::bigint AND l.kind = 'message'
    AND {in_scope}
