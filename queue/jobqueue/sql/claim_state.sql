-- claim_state: the newest state of a queue's scheduler, of one class of claims and one part; and the queue's virtual time.
-- Each class adds to virtual time what it met, so the newest rows of any class have it; of concurrent parts the latest.
-- params: queue_id, claim_class, part, is_costed, now
-- returns state (null: none yet), virtual_s (null: service is not counted, or nothing was started yet), and the instant
WITH {clock}
SELECT (
    SELECT state FROM queue_schedulerstate
    WHERE queue_id = %(queue_id)s::bigint AND claim_class = %(claim_class)s::bytea AND part = %(part)s::text
    ORDER BY id DESC LIMIT 1
), CASE WHEN %(is_costed)s::bool THEN (
    SELECT max((n.state->>'virtual_s')::float8)
    FROM (SELECT state FROM queue_schedulerstate WHERE queue_id = %(queue_id)s::bigint ORDER BY id DESC LIMIT 8) n
) END, at
FROM clock
