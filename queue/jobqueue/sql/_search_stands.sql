-- Whether a job `l` stands where a search wants it.
    (%(state)s::text IS NULL
        OR %(state)s::text = 'running' AND EXISTS (SELECT FROM queue_lease p WHERE p.job_id = l.id)
        OR %(state)s::text = 'ready' AND EXISTS (SELECT FROM queue_readyjob p WHERE p.job_id = l.id)
        OR %(state)s::text = 'scheduled' AND EXISTS (SELECT FROM queue_scheduledjob p WHERE p.job_id = l.id)
        OR %(state)s::text = 'dead' AND EXISTS (
            SELECT FROM dlq_deadletter p WHERE p.job_id = l.id
                AND (%(reason)s::text IS NULL OR p.reason = %(reason)s::text)
                AND (%(fingerprint)s::text IS NULL OR p.fingerprint = %(fingerprint)s::text)
        )
        OR EXISTS (SELECT FROM queue_result p WHERE p.job_id = l.id AND p.outcome = %(state)s::text))
