-- space_begin: the next job gets this id, unless ids are in that space already.
-- params: first (id)
SELECT CASE WHEN last_value >> 48 <> %(first)s::bigint >> 48 OR NOT is_called
    THEN setval('queue_job_id_seq', %(first)s::bigint, false) END
FROM queue_job_id_seq
