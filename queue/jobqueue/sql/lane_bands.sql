-- lane_bands: which queue and band lanes belong to; both stay for a lane's life.
-- params: lane_ids
-- returns lane_id, queue_id, priority
-- plan: by index
SELECT l.id, l.queue_id, l.priority FROM queue_lane l WHERE l.id = ANY(%(lane_ids)s::bigint[])
