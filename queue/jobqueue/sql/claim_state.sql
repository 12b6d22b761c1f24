-- claim_state: the newest state of a queue's scheduler, of one class of claims and one part.
-- params: queue_id, claim_class, part
SELECT state FROM queue_schedulerstate
WHERE queue_id = %(queue_id)s::bigint AND claim_class = %(claim_class)s::bytea AND part = %(part)s::text
ORDER BY id DESC LIMIT 1
