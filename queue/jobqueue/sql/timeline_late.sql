-- timeline_late: calls of a job's attempts that came too late, newest first.
-- params: job_id, limit; tenant_id, queue_ids
-- returns generation, verb, code, at
-- plan: by index
WITH visible AS MATERIALIZED (SELECT l.id FROM queue_job l WHERE l.id = %(job_id)s::bigint AND {in_scope})
SELECT c.generation, c.verb, c.code, c.at
FROM visible v JOIN queue_latecall c ON c.job_id = v.id
ORDER BY c.at DESC, c.generation DESC
LIMIT %(limit)s::int
