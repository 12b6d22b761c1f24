-- poison_release: let the lanes of a tenant and kind go on, and begin to count its poisons anew.
-- params: tenant_id, kind, now
-- returns how many lanes were held back.  locks: lanes in id order
-- plan: by index
WITH {clock},
    forgotten AS (
        DELETE FROM queue_poisonmark m WHERE m.tenant_id = %(tenant_id)s::bigint AND m.kind = %(kind)s::text
    ),
    gated AS MATERIALIZED (
        SELECT l.id, l.gated_until FROM queue_lane l
        WHERE l.tenant_id = %(tenant_id)s::bigint AND l.kind = %(kind)s::text AND l.gated_until IS NOT NULL
        ORDER BY l.id
        FOR UPDATE
    ),
    released AS (
        UPDATE queue_lane l SET gated_until = NULL, is_active = true FROM gated g WHERE l.id = g.id
    )
SELECT count(*) FROM gated WHERE gated_until > (SELECT at FROM clock)
