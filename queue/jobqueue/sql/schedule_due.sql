-- schedule_due: schedules that a dispatcher must look at, those that wait longest first.
-- params: limit, now
-- returns schedule_id, version, tenant_id, queue_id, priority, kind, cron, timezone, missed, payload's bytes,
--   next_at, the queue's name (null: the shard does not know it), at
-- locks: none; `schedule_fire` and `schedule_hold` find out who was first
-- plan: by index
WITH {clock}
SELECT r.schedule_id, r.version, r.tenant_id, r.queue_id, r.priority, r.kind, r.cron, r.timezone, r.missed,
    octet_length(r.payload), r.next_at, p.name, (SELECT at FROM clock)
FROM queue_schedulerow r LEFT JOIN queue_policyrow p ON p.queue_id = r.queue_id
WHERE r.is_enabled AND r.due_at <= (SELECT at FROM clock)
ORDER BY r.due_at, r.schedule_id
LIMIT %(limit)s::int
