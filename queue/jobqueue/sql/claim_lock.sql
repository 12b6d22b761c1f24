-- claim_lock: one claim at a time plans a queue on this shard; held to the end of the transaction.
-- params: queue_id
SELECT pg_advisory_xact_lock(hashtextextended('queue.claim', %(queue_id)s::bigint))
