-- slot_push: which slots of a ring this shard owns, as control has them; never an older version over a newer.
-- params: ring_id, version, slots, epochs (one each)
-- run after slot_hold and slot_lock in the same transaction.  locks: the ring's slots
WITH gone AS (
        DELETE FROM queue_slotowner o
        WHERE o.ring_id = %(ring_id)s::bigint AND NOT o.slot = ANY(%(slots)s::smallint[])
    ),
    owned AS (
        INSERT INTO queue_slotowner AS o (ring_id, slot, epoch)
        SELECT %(ring_id)s::bigint, s.slot, s.epoch
        FROM unnest(%(slots)s::smallint[], %(epochs)s::int[]) AS s(slot, epoch)
        ORDER BY s.slot
        ON CONFLICT (ring_id, slot) DO UPDATE SET epoch = excluded.epoch WHERE o.epoch <> excluded.epoch
    )
UPDATE queue_slotring SET version = %(version)s::bigint WHERE ring_id = %(ring_id)s::bigint
