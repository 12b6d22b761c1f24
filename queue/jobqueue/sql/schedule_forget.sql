-- schedule_forget: these schedules fire here no more; the history of their fires stays for a while.
-- params: schedule_ids
-- returns how many were known.  locks: schedules in id order
-- plan: by index
WITH known AS MATERIALIZED (
        SELECT r.schedule_id FROM queue_schedulerow r WHERE r.schedule_id = ANY(%(schedule_ids)s::bigint[])
        ORDER BY r.schedule_id FOR UPDATE
    ),
    forgotten AS (DELETE FROM queue_schedulerow r USING known k WHERE r.schedule_id = k.schedule_id)
SELECT count(*) FROM known
