-- lane_forget: delete lanes that this transaction holds since `lane_stale`. What was enqueued before that is seen now:
-- a statement that puts a job into a lane holds it, unless the lane was used within the last hour.
-- params: ids
-- returns how many
-- plan: by index
WITH forgotten AS (
        DELETE FROM queue_lane l WHERE l.id = ANY(%(ids)s::bigint[]) AND {unused} RETURNING l.id
    )
SELECT count(*) FROM forgotten
