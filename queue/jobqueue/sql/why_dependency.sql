-- why_dependency: what a dependency bears at this instant, and what holds its jobs back.
-- params: name, now
-- returns one row, see `why._Dependency`; no row: it has no state
-- plan: by index
WITH {clock},
    limited AS MATERIALIZED (SELECT d.id FROM queue_dependencystate d WHERE d.name = %(name)s::text),
    {dependency_rooms}
SELECT f.is_held_open, f.breaker, f.probe_at, f.probe_job_id IS NOT NULL, least(f.limit_now, f.running_share), f.running, f.rate_per_s,
    CASE WHEN f.rate_per_s IS NOT NULL
            AND f.in_window >= coalesce(f.rate_share, f.rate_burst, greatest(1, ceil(f.rate_per_s))) THEN f.frees_at END,
    f.ramp_age_s < f.ramp_s, r.starts_left
FROM dependency_facts f JOIN dependency_rooms r ON r.id = f.id
