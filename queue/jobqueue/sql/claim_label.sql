-- claim_label: name the worker of each lease that one claim made for several, and the key by which a repeat finds it.
-- params: job_ids, generations, workers, claim_keys, claim_hashes (one a lease; no key: null, and no hash)
-- locks: lease rows in id order; a lease that is gone is passed over
-- plan: by index
WITH asked AS MATERIALIZED (
        SELECT s.job_id, w.worker, w.claim_key, w.claim_hash
        FROM unnest(
            %(job_ids)s::bigint[], %(generations)s::int[], %(workers)s::text[], %(claim_keys)s::text[],
            %(claim_hashes)s::bytea[]
        ) AS w(job_id, generation, worker, claim_key, claim_hash)
        JOIN queue_lease s ON s.job_id = w.job_id
        WHERE s.generation = w.generation
        ORDER BY s.job_id
        FOR UPDATE OF s
    ),
    labelled AS (
        UPDATE queue_lease s SET worker = a.worker, claim_key = a.claim_key, claim_hash = a.claim_hash
        FROM asked a WHERE s.job_id = a.job_id
    )
SELECT count(*) FROM asked
