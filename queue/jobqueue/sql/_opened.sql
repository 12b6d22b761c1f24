-- A lane that sleeps, or of which nobody has heard for an hour, may be deleted at this moment: it is held, and is in
    -- `gone` if it is not there any more. The others were used so lately that upkeep looks at none of them.
    asleep AS MATERIALIZED (
        SELECT l.id FROM queue_lane l WHERE l.id IN (SELECT lane_id FROM wanted)
            AND {lane_sleeps}
    ),
    dozing AS MATERIALIZED (
        SELECT l.id FROM asleep a JOIN queue_lane l ON l.id = a.id ORDER BY l.id FOR UPDATE OF l
    ),
    gone AS MATERIALIZED (SELECT a.id FROM asleep a WHERE a.id NOT IN (SELECT id FROM dozing)),
    awake AS (UPDATE queue_lane l SET is_active = true, used_at = clock_timestamp() FROM dozing d WHERE l.id = d.id)
