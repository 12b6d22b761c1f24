-- campaign_follow: learn what became of the next redrives of a campaign, going round among those not known yet.
-- params: campaign_id, limit
-- returns how many became known.  locks: the part (SKIP LOCKED), under which nobody else tells outcomes
WITH part AS MATERIALIZED (
        SELECT c.campaign_id, c.followed_to FROM dlq_campaignpart c
        WHERE c.campaign_id = %(campaign_id)s::bigint AND c.redriven > c.succeeded + c.failed + c.ended
        FOR UPDATE SKIP LOCKED
    ),
    looked AS MATERIALIZED (
        SELECT r.job_id, r.redrive_generation
        FROM part p JOIN dlq_redrive r ON r.campaign_id = p.campaign_id
        WHERE r.outcome IS NULL AND r.job_id > p.followed_to
        ORDER BY r.job_id LIMIT %(limit)s::int
    ),
    known AS MATERIALIZED (
        SELECT o.job_id, o.redrive_generation, CASE
            WHEN EXISTS (
                SELECT FROM dlq_redrive n WHERE n.job_id = o.job_id AND n.redrive_generation > o.redrive_generation
            ) OR EXISTS (SELECT FROM dlq_deadletter d WHERE d.job_id = o.job_id) THEN 'failed'
            ELSE (
                SELECT CASE f.outcome WHEN 'succeeded' THEN 'succeeded' ELSE 'ended' END
                FROM queue_result f WHERE f.job_id = o.job_id
            )
        END AS outcome
        FROM looked o
    ),
    told AS (
        UPDATE dlq_redrive r SET outcome = k.outcome FROM known k
        WHERE r.job_id = k.job_id AND r.redrive_generation = k.redrive_generation AND k.outcome IS NOT NULL
            AND r.outcome IS NULL
        RETURNING r.outcome
    ),
    added AS (
        SELECT count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE outcome = 'failed') AS failed, count(*) FILTER (WHERE outcome = 'ended') AS ended
        FROM told
    ),
    moved AS (
        UPDATE dlq_campaignpart c
        SET succeeded = c.succeeded + a.succeeded, failed = c.failed + a.failed, ended = c.ended + a.ended,
            followed_to = CASE WHEN (SELECT count(*) FROM looked) < %(limit)s::int THEN 0
                ELSE (SELECT max(job_id) FROM looked) END
        FROM part p, added a WHERE c.campaign_id = p.campaign_id
    )
SELECT succeeded + failed + ended FROM added
