-- dependency_store: where a dependency stands after it was judged; run while its row is held.
-- params: name, breaker, counted_from, probe_at, has_probe, ramp_from, limit_now, halved_at
-- returns its id.  locks: the row
-- plan: by index
UPDATE queue_dependencystate d SET
    breaker = %(breaker)s::text, counted_from = %(counted_from)s::timestamptz, probe_at = %(probe_at)s::timestamptz,
    probe_job_id = CASE WHEN %(has_probe)s::bool THEN d.probe_job_id END,
    probe_generation = CASE WHEN %(has_probe)s::bool THEN d.probe_generation END,
    ramp_from = %(ramp_from)s::timestamptz, limit_now = %(limit_now)s::float8, halved_at = %(halved_at)s::timestamptz
WHERE d.name = %(name)s::text
RETURNING d.id
