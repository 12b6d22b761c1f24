-- slot_lock: wait for every enqueue that holds a slot of this ring, and let none begin before this transaction ends.
-- params: ring_id.  locks: the ring's slots, in order
-- plan: by index
SELECT o.slot FROM queue_slotowner o WHERE o.ring_id = %(ring_id)s::bigint ORDER BY o.slot FOR UPDATE OF o
