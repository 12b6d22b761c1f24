-- restored_generations: raise the generations of the next jobs that can be claimed again above all that can have been
--   handed out before the restore.
-- params: after_id (job ids up to here are done), limit (of each place), step
-- returns how many were raised, and where to go on (null: at the end).  locks: rows of each place in id order
-- plan: by index
WITH bound AS MATERIALIZED (
        -- As far as every place with more than `limit` rows is read: what lies beyond is the next call's.
        SELECT min(b.last) AS last FROM (
            SELECT CASE WHEN count(*) = %(limit)s::int THEN max(r.job_id) END AS last FROM (
                SELECT job_id FROM queue_readyjob WHERE job_id > %(after_id)s::bigint
                ORDER BY job_id LIMIT %(limit)s::int) r
            UNION ALL
            SELECT CASE WHEN count(*) = %(limit)s::int THEN max(r.job_id) END FROM (
                SELECT job_id FROM queue_scheduledjob WHERE job_id > %(after_id)s::bigint
                ORDER BY job_id LIMIT %(limit)s::int) r
            UNION ALL
            SELECT CASE WHEN count(*) = %(limit)s::int THEN max(r.job_id) END FROM (
                SELECT job_id FROM dlq_deadletter WHERE job_id > %(after_id)s::bigint
                ORDER BY job_id LIMIT %(limit)s::int) r
        ) b
    ),
    ready AS (
        UPDATE queue_readyjob t SET generation = t.generation + %(step)s::int FROM bound b
        WHERE t.job_id > %(after_id)s::bigint AND (b.last IS NULL OR t.job_id <= b.last) RETURNING t.job_id
    ),
    scheduled AS (
        UPDATE queue_scheduledjob t SET generation = t.generation + %(step)s::int FROM bound b
        WHERE t.job_id > %(after_id)s::bigint AND (b.last IS NULL OR t.job_id <= b.last) RETURNING t.job_id
    ),
    dead AS (
        UPDATE dlq_deadletter t SET generation = t.generation + %(step)s::int FROM bound b
        WHERE t.job_id > %(after_id)s::bigint AND (b.last IS NULL OR t.job_id <= b.last) RETURNING t.job_id
    )
SELECT (SELECT count(*) FROM ready) + (SELECT count(*) FROM scheduled) + (SELECT count(*) FROM dead),
    (SELECT last FROM bound)
