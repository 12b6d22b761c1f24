-- dependency_share_put: the share that control has granted under this version; an older version changes nothing. A limit
-- that stood at all of the old share stands at all of the new one; one that was halved goes on growing by successes.
-- params: name, resource, share, version.  locks: the row
-- returns the share; no row: it was an older version, or the shard does not know the dependency
-- plan: by index
UPDATE queue_dependencystate d SET
    rate_share = CASE WHEN %(resource)s::text = 'rate' THEN %(share)s::int ELSE d.rate_share END,
    rate_version = CASE WHEN %(resource)s::text = 'rate' THEN %(version)s::bigint ELSE d.rate_version END,
    running_share = CASE WHEN %(resource)s::text = 'running' THEN %(share)s::int ELSE d.running_share END,
    running_version = CASE WHEN %(resource)s::text = 'running' THEN %(version)s::bigint ELSE d.running_version END,
    limit_now = CASE
        WHEN %(resource)s::text <> 'running' OR d.max_running IS NULL THEN d.limit_now
        WHEN d.limit_now IS NULL OR d.limit_now >= coalesce(d.running_share, 0) THEN greatest(1, %(share)s::int)
        ELSE greatest(1, least(d.limit_now, %(share)s::int)) END
WHERE d.name = %(name)s::text
    AND CASE WHEN %(resource)s::text = 'rate' THEN d.rate_version ELSE d.running_version END < %(version)s::bigint
RETURNING %(share)s::int
