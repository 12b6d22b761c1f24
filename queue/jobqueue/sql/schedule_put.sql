-- schedule_put: what the shard must know of a schedule, never an older version over a newer.
-- It goes on where it is; with another expression or zone, or after a pause, it begins anew at `next_at`.
-- params: schedule_id, version, tenant_id, queue_id, priority, kind, cron, timezone, payload, missed, overlap, is_enabled,
--   next_at (its first fire from now on; null: none)
-- locks: the schedule's row
INSERT INTO queue_schedulerow AS r (
    schedule_id, version, tenant_id, queue_id, priority, kind, cron, timezone, payload, missed, overlap, is_enabled,
    next_at, due_at, runs, missed_count
)
VALUES (
    %(schedule_id)s::bigint, %(version)s::bigint, %(tenant_id)s::bigint, %(queue_id)s::bigint, %(priority)s::smallint,
    %(kind)s::text, %(cron)s::text, %(timezone)s::text, %(payload)s::text, %(missed)s::text, %(overlap)s::text,
    %(is_enabled)s::bool, %(next_at)s::timestamptz, %(next_at)s::timestamptz, '{}', 0
)
ON CONFLICT (schedule_id) DO UPDATE
SET version = excluded.version, queue_id = excluded.queue_id, priority = excluded.priority, kind = excluded.kind,
    cron = excluded.cron, timezone = excluded.timezone, payload = excluded.payload, missed = excluded.missed,
    overlap = excluded.overlap, is_enabled = excluded.is_enabled,
    next_at = CASE
        WHEN r.is_enabled AND r.cron = excluded.cron AND r.timezone = excluded.timezone THEN r.next_at
        ELSE excluded.next_at
    END,
    due_at = CASE
        WHEN r.is_enabled AND r.cron = excluded.cron AND r.timezone = excluded.timezone THEN r.due_at
        ELSE excluded.due_at
    END
WHERE r.version < excluded.version
