-- kinds: what an enqueue must know of registered kinds.
-- params: kinds
-- returns kind, version, payload_schema (JSON text or null), dependency; no row: not registered
-- plan: by index
SELECT k.kind, k.version, k.payload_schema, k.dependency
FROM unnest(%(kinds)s::text[]) AS w(kind)
JOIN queue_kindrow k ON k.kind = w.kind
