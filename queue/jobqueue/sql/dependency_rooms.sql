-- dependency_rooms: how many jobs of each dependency may still start; exact for those that this transaction holds.
-- params: dependency_ids, now
-- returns id, starts left; run after `dependency_hold`, as a statement of its own
-- plan: by index
WITH {clock},
    limited AS MATERIALIZED (SELECT i.id FROM unnest(%(dependency_ids)s::bigint[]) AS i(id)),
    {dependency_rooms}
SELECT id, starts_left FROM dependency_rooms
