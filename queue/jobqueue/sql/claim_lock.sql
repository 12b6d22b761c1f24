-- claim_lock: one claim at a time plans a part of a queue on this shard; held to the end of the transaction.
-- Strict bands have a lock of their own, so that urgent work never waits behind bulk claims: while something waits in
-- `first`, the lock of the others is not even asked for.
-- params: queue_id, part; first (bands that must be empty for this caller), kinds, tenant_id
-- returns whether the lock is held
-- plan: by index
WITH waiting AS MATERIALIZED (SELECT {has_work} AS first)
SELECT CASE WHEN NOT first THEN
    pg_advisory_xact_lock(hashtextextended('queue.claim.' || %(part)s::text, %(queue_id)s::bigint)) IS NOT NULL
ELSE false END
FROM waiting
