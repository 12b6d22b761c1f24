-- slot_hold: take hold of what this shard knows of a ring, to the end of the transaction.
-- params: ring_id, version (of who asks)
-- returns its version if that is older; no row: it is as new or newer.  locks: the ring's row
-- plan: by index
INSERT INTO queue_slotring AS r (ring_id, version) VALUES (%(ring_id)s::bigint, 0)
ON CONFLICT (ring_id) DO UPDATE SET version = r.version WHERE r.version < %(version)s::bigint
RETURNING r.version
