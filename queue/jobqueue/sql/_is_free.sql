NOT {lane_sleeps} AND NOT p.is_intake_paused AND NOT {is_limited} AND NOT {is_unchecked}
            AND NOT EXISTS (SELECT FROM queue_slotring)
