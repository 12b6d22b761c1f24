-- claim_remember: the state of a queue's scheduler after a claim: a row more, never an update in place.
-- params: queue_id, claim_class, part, policy_version, state (JSON text)
INSERT INTO queue_schedulerstate (queue_id, claim_class, part, policy_version, state, at)
VALUES (%(queue_id)s::bigint, %(claim_class)s::bytea, %(part)s::text, %(policy_version)s::bigint, %(state)s::jsonb,
    clock_timestamp())
