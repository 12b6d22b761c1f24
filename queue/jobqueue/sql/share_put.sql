-- share_put: the share that control has granted under this version; an older version changes nothing.
-- params: tenant_id, queue, band, resource, share, version.  locks: the share's row
-- plan: by index
INSERT INTO tenants_limitshare AS s (tenant_id, queue, band, resource, share, version)
VALUES (
    %(tenant_id)s::bigint, %(queue)s::text, %(band)s::smallint, %(resource)s::text, %(share)s::int, %(version)s::bigint
)
ON CONFLICT (tenant_id, queue, band, resource) DO UPDATE SET share = excluded.share, version = excluded.version
WHERE s.version < excluded.version
RETURNING s.share
