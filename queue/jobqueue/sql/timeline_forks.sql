-- timeline_forks: what a job was made from, and on this shard the jobs that were made from it.
-- params: job_id, limit
-- returns job_id, origin_job_id, at, actor, note
-- plan: by index
SELECT * FROM (
    SELECT f.job_id, f.origin_job_id, f.at, f.actor, f.note FROM dlq_fork f WHERE f.job_id = %(job_id)s::bigint
    UNION ALL
    SELECT f.job_id, f.origin_job_id, f.at, f.actor, f.note FROM dlq_fork f
    WHERE f.origin_job_id = %(job_id)s::bigint
) t
ORDER BY at DESC LIMIT %(limit)s::int
