-- purge_jobs: forget finished jobs older than their queue's retention, with all their history; keys stay a while.
-- Never a live job or a dead letter: only rows of queue_result are candidates.
-- params: limit, after_at and after_id (null: from the oldest), window (results looked at), now
-- returns how many jobs were purged, how many results were looked at, and the last of them (finished_at, job_id):
--   queues differ in retention, so what is old enough for one queue stands among what another keeps
-- locks: result rows, SKIP LOCKED; then the keys of those jobs, in key order
-- plan: by index
WITH {clock},
    looked AS MATERIALIZED (
        SELECT f.job_id, f.finished_at
        FROM queue_result f
        WHERE f.finished_at < (SELECT at FROM clock)
                - (SELECT min(retention_s) FROM queue_policyrow) * interval '1 second'
            AND f.finished_at >= coalesce(%(after_at)s::timestamptz, '-infinity')
            AND (%(after_at)s::timestamptz IS NULL
                 OR (f.finished_at, f.job_id) > (%(after_at)s::timestamptz, %(after_id)s::bigint))
        ORDER BY f.finished_at, f.job_id
        LIMIT %(window)s::int
    ),
    due AS MATERIALIZED (
        SELECT f.job_id, j.tenant_id, j.queue_id, j.request_key
        FROM looked o
        JOIN queue_result f ON f.job_id = o.job_id
        JOIN queue_job j ON j.id = f.job_id
        JOIN queue_policyrow p ON p.queue_id = j.queue_id
        WHERE f.finished_at < (SELECT at FROM clock) - p.retention_s * interval '1 second'
        ORDER BY f.finished_at
        LIMIT %(limit)s::int
        FOR UPDATE OF f SKIP LOCKED
    ),
    keys AS MATERIALIZED (
        SELECT k.id FROM queue_requestkey k JOIN due d ON k.tenant_id = d.tenant_id AND k.queue_id = d.queue_id
            AND k.key = d.request_key AND k.job_id = d.job_id
        ORDER BY k.id
        FOR UPDATE OF k
    ),
    dated AS (
        UPDATE queue_requestkey k SET job_purged_at = (SELECT at FROM clock) FROM keys WHERE k.id = keys.id
    ),
    corrections AS (DELETE FROM dlq_correction c USING due d WHERE c.job_id = d.job_id),
    forks AS (DELETE FROM dlq_fork o USING due d WHERE o.job_id = d.job_id),
    redrives AS (DELETE FROM dlq_redrive r USING due d WHERE r.job_id = d.job_id),
    late_calls AS (DELETE FROM queue_latecall c USING due d WHERE c.job_id = d.job_id),
    attempts AS (DELETE FROM queue_attempt a USING due d WHERE a.job_id = d.job_id),
    results AS (DELETE FROM queue_result f USING due d WHERE f.job_id = d.job_id),
    jobs AS (DELETE FROM queue_job j USING due d WHERE j.id = d.job_id)
SELECT (SELECT count(*) FROM due), count(*), max(finished_at),
    (SELECT l.job_id FROM looked l ORDER BY l.finished_at DESC, l.job_id DESC LIMIT 1)
FROM looked
