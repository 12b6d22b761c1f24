-- audit_page: entries of this database, newest first: along a target's or a tenant's index, else a window of all.
-- params: tenant_id (null: every chain), is_platform (only the platform's own chain), target, actor, action (each null:
--   any; an action that ends in a dot means all that begin so), since, until (null: any), before and above (ids; null:
--   all), window (entries looked at), limit
-- returns ids, window_to (the last id looked at), is_last (nothing older is left to look at)
-- plan: by index
WITH of_target AS MATERIALIZED (
        SELECT e.id FROM tenants_auditentry e
        WHERE e.target = %(target)s::text
            AND (%(tenant_id)s::bigint IS NULL OR e.tenant_id = %(tenant_id)s::bigint)
            AND (NOT %(is_platform)s::boolean OR e.tenant_id IS NULL)
            AND e.id < coalesce(%(before)s::bigint, 9223372036854775807) AND e.id > coalesce(%(above)s::bigint, 0)
        ORDER BY e.id DESC LIMIT %(window)s::int
    ),
    of_tenant AS MATERIALIZED (
        SELECT e.id FROM tenants_auditentry e
        WHERE %(target)s::text IS NULL AND e.tenant_id = %(tenant_id)s::bigint
            AND e.id < coalesce(%(before)s::bigint, 9223372036854775807) AND e.id > coalesce(%(above)s::bigint, 0)
        ORDER BY e.id DESC LIMIT %(window)s::int
    ),
    of_platform AS MATERIALIZED (
        SELECT e.id FROM tenants_auditentry e
        WHERE %(target)s::text IS NULL AND %(is_platform)s::boolean AND e.tenant_id IS NULL
            AND e.id < coalesce(%(before)s::bigint, 9223372036854775807) AND e.id > coalesce(%(above)s::bigint, 0)
        ORDER BY e.id DESC LIMIT %(window)s::int
    ),
    of_all AS MATERIALIZED (
        SELECT e.id FROM tenants_auditentry e
        WHERE %(target)s::text IS NULL AND %(tenant_id)s::bigint IS NULL AND NOT %(is_platform)s::boolean
            AND e.id < coalesce(%(before)s::bigint, 9223372036854775807) AND e.id > coalesce(%(above)s::bigint, 0)
        ORDER BY e.id DESC LIMIT %(window)s::int
    ),
    looked AS MATERIALIZED (
        SELECT id FROM of_target UNION ALL SELECT id FROM of_tenant UNION ALL SELECT id FROM of_platform
        UNION ALL SELECT id FROM of_all
    ),
    edge AS MATERIALIZED (SELECT min(id) AS window_to, count(*) < %(window)s::int AS is_last FROM looked),
    fits AS MATERIALIZED (
        SELECT e.id
        FROM looked o
        CROSS JOIN LATERAL (
            -- Looked up one by one, whatever the planner believes of the table's size.
            SELECT j.id, j.tenant_id, j.actor, j.action, j.at
            FROM tenants_auditentry j WHERE j.id = o.id OFFSET 0
        ) e
        WHERE (%(tenant_id)s::bigint IS NULL OR e.tenant_id = %(tenant_id)s::bigint)
            AND (NOT %(is_platform)s::boolean OR e.tenant_id IS NULL)
            AND (%(actor)s::text IS NULL OR e.actor = %(actor)s::text)
            AND (%(action)s::text IS NULL OR e.action = %(action)s::text
                OR right(%(action)s::text, 1) = '.' AND starts_with(e.action, %(action)s::text))
            AND (%(since)s::timestamptz IS NULL OR e.at >= %(since)s::timestamptz)
            AND (%(until)s::timestamptz IS NULL OR e.at < %(until)s::timestamptz)
        ORDER BY o.id DESC LIMIT %(limit)s::int
    )
SELECT (SELECT coalesce(array_agg(id ORDER BY id DESC), '{}') FROM fits), e.window_to, e.is_last FROM edge e
