-- late_calls: note calls of attempts' own workers that came too late. A call that is repeated is told once.
-- params: job_ids, generations, verbs, codes (one a call); now
-- plan: by index
INSERT INTO queue_latecall (job_id, generation, verb, code, at)
SELECT c.job_id, c.generation, c.verb, c.code, coalesce(%(now)s::timestamptz, clock_timestamp())
FROM unnest(%(job_ids)s::bigint[], %(generations)s::int[], %(verbs)s::text[], %(codes)s::text[])
    AS c(job_id, generation, verb, code)
WHERE EXISTS (SELECT FROM queue_job l WHERE l.id = c.job_id)
ORDER BY c.job_id, c.generation, c.verb
ON CONFLICT DO NOTHING
