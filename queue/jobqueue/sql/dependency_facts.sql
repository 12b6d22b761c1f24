-- dependency_facts: what a dependency's judge must know: where it stands, its window, and what became of its probe.
-- params: name, now
-- returns see `judging._Facts`; the window's calls and failures; the probe's lease (null: none, false: lapsed), the outcome
--   and the error class of its attempt; and the instant
-- plan: by index
WITH {clock}
SELECT d.breaker, d.counted_from, d.probe_at, d.probe_job_id, d.ramp_from, d.limit_now,
    CASE WHEN d.max_running IS NOT NULL THEN greatest(1, least(d.max_running, d.running_share)) END, d.halved_at,
    d.breaker_share, d.breaker_calls, d.breaker_window_s, d.probe_after_s, d.ramp_s,
    w.calls, w.failures, s.expires_at > k.at, a.outcome, a.error_class, k.at
FROM clock k
JOIN queue_dependencystate d ON d.name = %(name)s::text
CROSS JOIN LATERAL (
    SELECT coalesce(sum(t.succeeded + t.failed), 0)::bigint AS calls, coalesce(sum(t.failed), 0)::bigint AS failures
    FROM queue_dependencytally t
    WHERE t.dependency = d.name
        AND t.bucket >= greatest(d.counted_from, k.at - d.breaker_window_s * interval '1 second')
) w
LEFT JOIN queue_lease s ON s.job_id = d.probe_job_id AND s.generation = d.probe_generation
LEFT JOIN queue_attempt a ON a.job_id = d.probe_job_id AND a.generation = d.probe_generation
