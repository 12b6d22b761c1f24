-- correct: the next version of a held dead letter's payload.
-- params: job_id, redrive_generation, note, author, payload, payload_ref, new_hash, idempotency_key, call_hash, now
-- returns version, old_sha256.  run after correction_lock in the same transaction
WITH present AS MATERIALIZED (
        SELECT coalesce(c.version, 0) AS version,
            sha256(convert_to(CASE WHEN c.version IS NULL THEN j.payload ELSE c.payload END, 'UTF8')) AS sha256
        FROM queue_job j
        LEFT JOIN LATERAL (
            SELECT x.version, x.payload FROM dlq_correction x WHERE x.job_id = j.id ORDER BY x.version DESC LIMIT 1
        ) c ON true
        WHERE j.id = %(job_id)s::bigint
    )
INSERT INTO dlq_correction (
    job_id, version, redrive_generation, note, author, at, payload, payload_ref, payload_bytes, old_sha256, new_sha256,
    idempotency_key, call_hash
)
SELECT %(job_id)s::bigint, p.version + 1, %(redrive_generation)s::smallint, %(note)s::text, %(author)s::text,
    coalesce(%(now)s::timestamptz, clock_timestamp()), %(payload)s::text, %(payload_ref)s::text, coalesce(octet_length(%(payload)s::text), 0), p.sha256,
    %(new_hash)s::bytea, %(idempotency_key)s::text, %(call_hash)s::bytea
FROM present p
RETURNING version, old_sha256
