-- correct_many: the next version of the payload of each of many held dead letters.
-- params: job_ids, redrive_generations, payloads (one a job), note, author, now
-- returns job_id, version.  run in the transaction that holds them
INSERT INTO dlq_correction (
    job_id, version, redrive_generation, note, author, at, payload, payload_bytes, old_sha256, new_sha256
)
SELECT a.job_id, coalesce(c.version, 0) + 1, a.redrive_generation, %(note)s::text, %(author)s::text,
    coalesce(%(now)s::timestamptz, clock_timestamp()), a.payload, octet_length(a.payload),
    sha256(convert_to(CASE WHEN c.version IS NULL THEN j.payload ELSE c.payload END, 'UTF8')),
    sha256(convert_to(a.payload, 'UTF8'))
FROM unnest(%(job_ids)s::bigint[], %(redrive_generations)s::smallint[], %(payloads)s::text[])
    AS a(job_id, redrive_generation, payload)
JOIN queue_job j ON j.id = a.job_id
LEFT JOIN LATERAL (
    SELECT x.version, x.payload FROM dlq_correction x WHERE x.job_id = a.job_id ORDER BY x.version DESC LIMIT 1
) c ON true
ORDER BY a.job_id
RETURNING job_id, version
