-- audit_heads: the newest entry of each chain of this database that has grown; seals themselves are not sealed again.
-- params: above (id up to which all was looked at), seal (the action of seals), limit (entries looked at)
-- returns tenant_id, id, entry_hash (hex)
WITH grown AS MATERIALIZED (
        SELECT e.tenant_id, max(e.id) AS id
        FROM (
            SELECT x.id, x.tenant_id FROM tenants_auditentry x
            WHERE x.id > %(above)s::bigint AND x.action <> %(seal)s::text
            ORDER BY x.id LIMIT %(limit)s::int
        ) e
        GROUP BY e.tenant_id
    )
SELECT g.tenant_id, g.id, encode(e.entry_hash, 'hex') FROM grown g JOIN tenants_auditentry e ON e.id = g.id ORDER BY g.id
