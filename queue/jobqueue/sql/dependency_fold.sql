-- dependency_fold: consume what statements said of a dependency's calls, once; run while its row is held.
-- params: name, limit
-- returns succeeded, overloaded and when the latest overloaded call began.  locks: the rows
-- plan: by index
WITH taken AS (
        DELETE FROM queue_dependencydelta d
        USING (
            SELECT x.id FROM queue_dependencydelta x WHERE x.dependency = %(name)s::text
            ORDER BY x.at LIMIT %(limit)s::int
        ) o
        WHERE d.id = o.id
        RETURNING d.at, d.started, d.succeeded, d.failed, d.overloaded, d.overloaded_from
    ),
    tallied AS (
        INSERT INTO queue_dependencytally AS t (dependency, bucket, started, succeeded, failed)
        SELECT %(name)s::text, date_bin('100 milliseconds', at, 'epoch'), sum(started), sum(succeeded), sum(failed)
        FROM taken GROUP BY 2 ORDER BY 2
        ON CONFLICT (dependency, bucket) DO UPDATE SET
            started = t.started + excluded.started, succeeded = t.succeeded + excluded.succeeded,
            failed = t.failed + excluded.failed
    )
SELECT coalesce(sum(succeeded), 0)::bigint, coalesce(sum(overloaded), 0)::bigint, max(overloaded_from) FROM taken
