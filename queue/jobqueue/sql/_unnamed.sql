d.version = 0
    AND NOT EXISTS (SELECT FROM queue_lane l WHERE l.dependency = d.name AND l.dependency <> '')
    AND NOT EXISTS (SELECT FROM queue_dependencydelta x WHERE x.dependency = d.name)
