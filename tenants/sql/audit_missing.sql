-- audit_missing: which sealed entries are no longer there as they were.
-- params: seals (the entry that sealed it), ids, hashes (hex), one each
-- returns seal and id of those that are gone or have another hash
SELECT s.seal, s.id FROM unnest(%(seals)s::bigint[], %(ids)s::bigint[], %(hashes)s::text[]) AS s(seal, id, hash)
WHERE NOT EXISTS (
    SELECT FROM tenants_auditentry e WHERE e.id = s.id AND e.entry_hash = decode(s.hash, 'hex')
)
ORDER BY s.seal, s.id
