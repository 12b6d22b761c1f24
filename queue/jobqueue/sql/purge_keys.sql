-- purge_keys: forget request keys whose job is gone for seven days and whose window is over.
-- params: limit, now
-- returns how many keys were purged.  locks: key rows, SKIP LOCKED
-- plan: by index
WITH {clock},
    due AS MATERIALIZED (
        SELECT k.id
        FROM queue_requestkey k JOIN queue_policyrow p USING (queue_id)
        WHERE k.job_purged_at < (SELECT at FROM clock) - interval '7 days'
            AND k.accepted_at < (SELECT at FROM clock)
                - CASE k.namespace WHEN 0 THEN p.key_window_s ELSE p.dedup_window_s END * interval '1 second'
        ORDER BY k.job_purged_at
        LIMIT %(limit)s::int
        FOR UPDATE OF k SKIP LOCKED
    ),
    purged AS (DELETE FROM queue_requestkey k USING due d WHERE k.id = d.id)
SELECT count(*) FROM due
