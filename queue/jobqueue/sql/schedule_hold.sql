-- schedule_hold: look at these schedules again later; their fires wait, and count as missed when others follow.
-- params: schedule_ids, versions, next_ats (as they were read), holds_s (one a schedule); now
-- returns how many are held.  locks: schedules in id order, SKIP LOCKED
-- plan: by index
WITH {clock},
    asked AS MATERIALIZED (
        SELECT r.schedule_id, c.hold_s
        FROM unnest(%(schedule_ids)s::bigint[], %(versions)s::bigint[], %(next_ats)s::timestamptz[], %(holds_s)s::int[])
            AS c(schedule_id, version, next_at, hold_s)
        JOIN queue_schedulerow r ON r.schedule_id = c.schedule_id
        WHERE r.version = c.version AND r.next_at = c.next_at
        ORDER BY r.schedule_id
        FOR UPDATE OF r SKIP LOCKED
    ),
    moved_on AS (
        UPDATE queue_schedulerow r
        SET due_at = greatest(r.next_at, (SELECT at FROM clock) + a.hold_s * interval '1 second')
        FROM asked a WHERE r.schedule_id = a.schedule_id
    )
SELECT count(*) FROM asked
