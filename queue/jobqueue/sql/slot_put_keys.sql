-- slot_put_keys: keep request keys that came with their slots; what stands here of an earlier ownership is replaced.
-- params: tenant_ids, queue_ids, namespaces, keys, job_ids, fingerprints, accepted_ats, job_purged_ats, spaces (this
--   shard's: a key whose job has another is marked as moved); ring_id, version
-- returns one row; no row: this shard was told a newer version of the ring, and may own the slots by now: nothing is put
-- locks: the ring's row, shared; the keys, in key order
WITH guard AS MATERIALIZED (
        SELECT r.ring_id FROM queue_slotring r
        WHERE r.ring_id = %(ring_id)s::bigint AND r.version <= %(version)s::bigint
        FOR SHARE OF r
    ),
    kept AS (
        INSERT INTO queue_requestkey AS k (
            tenant_id, queue_id, namespace, key, job_id, fingerprint, accepted_at, job_purged_at, is_moved
        )
        SELECT s.tenant_id, s.queue_id, s.namespace, s.key, s.job_id, s.fingerprint, s.accepted_at, s.job_purged_at,
            NOT (s.job_id >> 48) = ANY(%(spaces)s::bigint[])
        FROM unnest(
            %(tenant_ids)s::bigint[], %(queue_ids)s::bigint[], %(namespaces)s::smallint[], %(keys)s::text[],
            %(job_ids)s::bigint[], %(fingerprints)s::bytea[], %(accepted_ats)s::timestamptz[],
            %(job_purged_ats)s::timestamptz[]
        ) AS s(tenant_id, queue_id, namespace, key, job_id, fingerprint, accepted_at, job_purged_at)
        CROSS JOIN guard
        ORDER BY s.tenant_id, s.queue_id, s.namespace, s.key
        ON CONFLICT (tenant_id, queue_id, namespace, key) DO UPDATE SET
            job_id = excluded.job_id, fingerprint = excluded.fingerprint, accepted_at = excluded.accepted_at,
            job_purged_at = excluded.job_purged_at, is_moved = excluded.is_moved
        WHERE (k.job_id, k.job_purged_at) IS DISTINCT FROM (excluded.job_id, excluded.job_purged_at)
    )
SELECT ring_id FROM guard
