-- claim_label: name the worker of each lease that one claim made for several.
-- params: job_ids, generations, workers (one a lease).  locks: lease rows in id order; a lease that is gone is passed over
-- plan: by index
WITH asked AS MATERIALIZED (
        SELECT s.job_id, w.worker
        FROM unnest(%(job_ids)s::bigint[], %(generations)s::int[], %(workers)s::text[]) AS w(job_id, generation, worker)
        JOIN queue_lease s ON s.job_id = w.job_id
        WHERE s.generation = w.generation
        ORDER BY s.job_id
        FOR UPDATE OF s
    ),
    labelled AS (UPDATE queue_lease s SET worker = a.worker FROM asked a WHERE s.job_id = a.job_id)
SELECT count(*) FROM asked
