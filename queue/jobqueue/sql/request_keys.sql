-- request_keys: who holds these keys.
-- params: tenant_ids, queue_ids, namespaces, keys (one key a position)
-- returns ord, job_id, fingerprint, accepted_at of those that exist
-- plan: by index, once
SELECT a.ord, k.job_id, k.fingerprint, k.accepted_at
FROM unnest(
    %(tenant_ids)s::bigint[], %(queue_ids)s::bigint[], %(namespaces)s::smallint[], %(keys)s::text[]
) WITH ORDINALITY AS a(tenant_id, queue_id, namespace, key, ord)
JOIN queue_requestkey k USING (tenant_id, queue_id, namespace, key)
