-- worker_leases: live leases of one worker process that nobody has started, for its keeper when it has died.
-- params: worker, limit, now
-- returns job_id, generation, token.  locks: none
WITH {clock}
SELECT s.job_id, s.generation, s.token
FROM queue_lease s
WHERE s.expires_at > (SELECT at FROM clock) AND s.worker = %(worker)s::text AND NOT s.is_started
ORDER BY s.job_id
LIMIT %(limit)s::int
