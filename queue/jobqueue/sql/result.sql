-- result: how a job ended, once it has.
-- params: job_id; tenant_id, queue_ids
SELECT f.outcome, f.body, encode(f.payload_hash, 'hex'), f.generation, f.finished_at
FROM queue_result f JOIN queue_job l ON l.id = f.job_id
WHERE f.job_id = %(job_id)s::bigint AND {in_scope}
