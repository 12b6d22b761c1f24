-- moved_keys_date: the jobs of these moved keys are gone on their shard; from now on the keys may be purged.
-- params: ids, job_ids (one each), now
-- returns how many.  locks: the keys, in row order
-- plan: by index
WITH {clock},
    held AS MATERIALIZED (
        SELECT k.id FROM unnest(%(ids)s::bigint[], %(job_ids)s::bigint[]) AS g(id, job_id)
        JOIN queue_requestkey k ON k.id = g.id AND k.job_id = g.job_id
        ORDER BY k.id
        FOR UPDATE OF k
    ),
    dated AS (UPDATE queue_requestkey k SET job_purged_at = (SELECT at FROM clock) FROM held WHERE k.id = held.id)
SELECT count(*) FROM held
