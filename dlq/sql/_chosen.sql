-- What a campaign's frozen filter chooses; d is the dead letter, l its lane.
    d.failed_at <= %(frozen_at)s::timestamptz
    AND (%(reason)s::text IS NULL OR d.reason = %(reason)s::text)
    AND (%(fingerprint)s::text IS NULL OR d.fingerprint = %(fingerprint)s::text)
    AND (%(failed_before)s::timestamptz IS NULL OR d.failed_at < %(failed_before)s::timestamptz)
    AND (%(failed_since)s::timestamptz IS NULL OR d.failed_at >= %(failed_since)s::timestamptz)
    AND (%(job_ids)s::bigint[] IS NULL OR d.job_id = ANY(%(job_ids)s::bigint[]))
    AND (%(queue_id)s::bigint IS NULL OR l.queue_id = %(queue_id)s::bigint)
    AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
    AND (%(tenant_id)s::bigint IS NULL OR l.tenant_id = %(tenant_id)s::bigint)
    AND (%(queue_ids)s::bigint[] IS NULL OR l.queue_id = ANY(%(queue_ids)s::bigint[]))
