-- Whether a job `l` stands where a search wants it. Each place is asked by a subquery for one row: those are always by
-- index, while what EXISTS asks beside OR may be read whole into a hash table.
    (%(state)s::text IS NULL OR %(state)s::text = coalesce(
        (SELECT 'running' FROM queue_lease p WHERE %(state)s::text = 'running' AND p.job_id = l.id),
        (SELECT 'ready' FROM queue_readyjob p WHERE %(state)s::text = 'ready' AND p.job_id = l.id),
        (SELECT 'scheduled' FROM queue_scheduledjob p WHERE %(state)s::text = 'scheduled' AND p.job_id = l.id),
        (
            SELECT 'dead' FROM dlq_deadletter p
            WHERE %(state)s::text = 'dead' AND p.job_id = l.id
                AND (%(reason)s::text IS NULL OR p.reason = %(reason)s::text)
                AND (%(fingerprint)s::text IS NULL OR p.fingerprint = %(fingerprint)s::text)
        ),
        (SELECT p.outcome FROM queue_result p WHERE p.job_id = l.id)
    ))
