-- timeline_returns: what people did with a job once it was dead, newest first.
-- params: job_id, limit; tenant_id, queue_ids
-- returns kind (redriven, corrected), at, actor, note, number (redrive generation, or version), was (what it was dead
--   as), campaign_id, audit_id
-- plan: by index
WITH visible AS MATERIALIZED (SELECT l.id FROM queue_job l WHERE l.id = %(job_id)s::bigint AND {in_scope})
SELECT * FROM (
    SELECT 'redriven'::text AS kind, r.at, r.actor, r.note, r.redrive_generation AS number, r.reason AS was,
        r.campaign_id, r.audit_id
    FROM visible v JOIN dlq_redrive r ON r.job_id = v.id
    UNION ALL
    SELECT 'corrected', c.at, c.author, c.note, c.version, NULL, NULL, NULL
    FROM visible v JOIN dlq_correction c ON c.job_id = v.id
) t
ORDER BY at DESC, number DESC
LIMIT %(limit)s::int
