-- slot_forget: a ring is no more; its slots count for nothing from now on.
-- params: ring_id.  locks: the ring's row and its slots: waits for enqueues that hold them
WITH slots AS (DELETE FROM queue_slotowner o WHERE o.ring_id = %(ring_id)s::bigint)
DELETE FROM queue_slotring r WHERE r.ring_id = %(ring_id)s::bigint
