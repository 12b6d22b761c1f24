-- schedule_standing: how these schedules stand on this shard.
-- params: schedule_ids (null: all of them)
-- returns schedule_id, version, next_at, missed_count, last_nominal_at, last_fired_at, last_job_id
SELECT r.schedule_id, r.version, r.next_at, r.missed_count, r.last_nominal_at, r.last_fired_at, r.last_job_id
FROM queue_schedulerow r
WHERE %(schedule_ids)s::bigint[] IS NULL OR r.schedule_id = ANY(%(schedule_ids)s::bigint[])
