-- slot_rings: what this shard knows of rings.
-- returns ring_id, version, slots, sum of their epochs
SELECT r.ring_id, r.version, count(o.slot), coalesce(sum(o.epoch), 0)::bigint
FROM queue_slotring r LEFT JOIN queue_slotowner o ON o.ring_id = r.ring_id
GROUP BY r.ring_id, r.version
ORDER BY r.ring_id
