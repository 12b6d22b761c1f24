-- dependency_share_lower: give back of a share what is not used, down to a target; what was granted and did not arrive is
-- refused.
-- params: name, resource, target, used (counted under dependency_wait by an earlier statement), version (of the last grant)
-- returns share and version as they are now; no row: the shard does not know the dependency
-- run after dependency_wait.  locks: the row
-- plan: by index
WITH lowered AS MATERIALIZED (
        SELECT d.id, least(
            coalesce(CASE WHEN %(resource)s::text = 'rate' THEN d.rate_share ELSE d.running_share END, 0),
            greatest(%(target)s::int, %(used)s::bigint)
        )::int AS share
        FROM queue_dependencystate d WHERE d.name = %(name)s::text
    )
UPDATE queue_dependencystate d SET
    rate_share = CASE WHEN %(resource)s::text = 'rate' THEN w.share ELSE d.rate_share END,
    rate_version = CASE WHEN %(resource)s::text = 'rate' THEN greatest(d.rate_version, %(version)s::bigint) + 1
        ELSE d.rate_version END,
    running_share = CASE WHEN %(resource)s::text = 'running' THEN w.share ELSE d.running_share END,
    running_version = CASE WHEN %(resource)s::text = 'running' THEN greatest(d.running_version, %(version)s::bigint) + 1
        ELSE d.running_version END,
    limit_now = CASE WHEN %(resource)s::text = 'running' THEN least(d.limit_now, greatest(1, w.share))
        ELSE d.limit_now END
FROM lowered w
WHERE d.id = w.id
RETURNING w.share, CASE WHEN %(resource)s::text = 'rate' THEN d.rate_version ELSE d.running_version END
