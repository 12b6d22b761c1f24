-- fsck_lock: one repair at a time on this shard; held to the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('queue.fsck', 0))
