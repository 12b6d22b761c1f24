-- restored_lapse: let leases of the past lapse now, uncharged: their workers are gone, and did not crash.
-- params: limit, now
-- returns how many.  locks: lease rows in id order
-- plan: by index
WITH {clock},
    held AS MATERIALIZED (
        SELECT s.job_id FROM queue_lease s
        WHERE s.expires_at > (SELECT at FROM clock) OR s.is_started OR s.lapses > 0
        ORDER BY s.job_id LIMIT %(limit)s::int FOR UPDATE
    ),
    lapsed AS (
        UPDATE queue_lease s
        SET expires_at = least(s.expires_at, (SELECT at FROM clock)), is_started = false, lapses = 0
        FROM held h WHERE s.job_id = h.job_id
        RETURNING s.job_id
    )
SELECT count(*) FROM lapsed
