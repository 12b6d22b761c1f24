-- dependency_wait: take hold of a dependency, waiting for whoever has it.
-- params: name
-- returns its id.  locks: the row, to the end of the transaction
-- plan: by index
SELECT d.id FROM queue_dependencystate d WHERE d.name = %(name)s::text FOR UPDATE
