-- poison_gate: hold back the lanes of each tenant and kind of which too many jobs were quarantined as poison of late.
-- params: poisons, window_s, gate_s, now
-- returns tenant_id, kind and until when, of those that are newly held back or held for longer.  locks: lanes in id order
-- plan: by index
WITH {clock},
    poisonous AS MATERIALIZED (
        SELECT m.tenant_id, m.kind, max(m.at) + %(gate_s)s::int * interval '1 second' AS until
        FROM clock k JOIN queue_poisonmark m ON m.at > k.at - %(window_s)s::int * interval '1 second'
        GROUP BY m.tenant_id, m.kind HAVING count(*) >= %(poisons)s::int
    ),
    gating AS MATERIALIZED (
        SELECT l.id, p.until FROM poisonous p
        JOIN queue_lane l ON l.tenant_id = p.tenant_id AND l.kind = p.kind
        WHERE (l.gated_until IS NULL OR l.gated_until < p.until) AND p.until > (SELECT at FROM clock)
        ORDER BY l.id
        FOR UPDATE OF l
    ),
    gated AS (
        UPDATE queue_lane l SET gated_until = g.until FROM gating g WHERE l.id = g.id
        RETURNING l.tenant_id, l.kind, l.gated_until
    )
SELECT DISTINCT tenant_id, kind, gated_until FROM gated
