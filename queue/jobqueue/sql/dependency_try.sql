-- dependency_try: take hold of a dependency unless another has it.
-- params: name
-- returns its id.  no row: held by another.  locks: the row, to the end of the transaction, SKIP LOCKED
-- plan: by index
SELECT d.id FROM queue_dependencystate d WHERE d.name = %(name)s::text FOR UPDATE SKIP LOCKED
