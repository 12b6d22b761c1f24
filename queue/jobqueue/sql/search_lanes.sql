-- search_lanes: the lanes of a search, up to a bound.
-- params: tenant_id, queue_ids, queue_id, kind, first_band, last_band (each null: any), limit
SELECT l.id FROM queue_lane l
WHERE {in_scope}
    AND (%(queue_id)s::bigint IS NULL OR l.queue_id = %(queue_id)s::bigint)
    AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
    AND (%(first_band)s::smallint IS NULL OR l.priority BETWEEN %(first_band)s::smallint AND %(last_band)s::smallint)
LIMIT %(limit)s::int
