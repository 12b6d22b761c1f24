-- dependency_forget: delete states of dependencies that this transaction holds since `dependency_stale`. A lane that was
-- made before that is seen now: making one holds the state of its dependency.
-- params: ids
-- returns how many
WITH forgotten AS (
        DELETE FROM queue_dependencystate d WHERE d.id = ANY(%(ids)s::bigint[]) AND {unnamed} RETURNING d.id
    )
SELECT count(*) FROM forgotten
