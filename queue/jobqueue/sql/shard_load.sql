-- shard_load: how many jobs wait and run here, about: by the statistics of their tables.
SELECT greatest(0, sum(c.reltuples) FILTER (WHERE c.relname IN ('queue_readyjob', 'queue_scheduledjob')))::bigint,
    (SELECT count(*) FROM queue_lease)
FROM pg_class c
WHERE c.oid IN ('queue_readyjob'::regclass, 'queue_scheduledjob'::regclass)
