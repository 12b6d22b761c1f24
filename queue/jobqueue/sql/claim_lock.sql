-- claim_lock: one claim at a time plans a part of a queue on this shard; held to the end of the transaction.
-- Strict bands have a lock of their own, so that urgent work never waits behind bulk claims.
-- params: queue_id, part
SELECT pg_advisory_xact_lock(hashtextextended('queue.claim.' || %(part)s::text, %(queue_id)s::bigint))
