-- lane_hold: use these lanes, so that upkeep does not forget them.
-- params: lane_ids
-- locks: lane rows in id order, to the end of the transaction
-- plan: by index
WITH held AS MATERIALIZED (
        SELECT l.id FROM queue_lane l WHERE l.id = ANY(%(lane_ids)s::bigint[]) ORDER BY l.id FOR UPDATE
    )
UPDATE queue_lane l SET used_at = clock_timestamp() FROM held h WHERE l.id = h.id
