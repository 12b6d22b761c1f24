-- share_lower: give back of a share what is not used, down to a target; what was granted and did not arrive is refused.
-- params: tenant_id, queue, band, resource, target, used (counted under share_hold by an earlier statement), version (of
--   the last grant)
-- returns share and version as they are now.  run after share_hold.  locks: the share's row
-- plan: by index
INSERT INTO tenants_limitshare AS s (tenant_id, queue, band, resource, share, version)
VALUES (
    %(tenant_id)s::bigint, %(queue)s::text, %(band)s::smallint, %(resource)s::text, 0, %(version)s::bigint + 1
)
ON CONFLICT (tenant_id, queue, band, resource) DO UPDATE SET
    share = least(s.share, greatest(%(target)s::int, %(used)s::bigint)),
    version = greatest(s.version, %(version)s::bigint) + 1
RETURNING s.share, s.version
