-- claim_note: claims of this class ask for work here; `why` tells by it whether a capable worker is there.
-- params: queue_id, claim_class, tenant_id, kinds, max_priority, every_s (what is noted anew within it stays), now
-- locks: the class's row, for this statement alone
-- plan: by index
WITH {clock}
INSERT INTO queue_claimclass AS c (queue_id, claim_class, tenant_id, kinds, max_priority, seen_at)
SELECT %(queue_id)s::bigint, %(claim_class)s::bytea, %(tenant_id)s::bigint, %(kinds)s::text[],
    %(max_priority)s::smallint, at
FROM clock
ON CONFLICT (queue_id, claim_class) DO UPDATE SET seen_at = excluded.seen_at
WHERE c.seen_at < excluded.seen_at - %(every_s)s::int * interval '1 second'
