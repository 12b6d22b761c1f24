-- dependency_hold: take hold of dependencies; one that another claim or a judge holds is passed over.
-- params: dependency_ids
-- returns the ids of those held.  locks: the rows in id order, SKIP LOCKED, to the end of the transaction
-- plan: by index
SELECT d.id FROM queue_dependencystate d WHERE d.id = ANY(%(dependency_ids)s::bigint[])
ORDER BY d.id FOR UPDATE SKIP LOCKED
