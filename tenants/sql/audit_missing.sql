-- audit_missing: which sealed entries are no longer there as they were.
-- params: ids, hashes (hex), one each
-- returns the ids of those that are gone or have another hash
SELECT s.id FROM unnest(%(ids)s::bigint[], %(hashes)s::text[]) AS s(id, hash)
WHERE NOT EXISTS (
    SELECT FROM tenants_auditentry e WHERE e.id = s.id AND e.entry_hash = decode(s.hash, 'hex')
)
ORDER BY s.id
