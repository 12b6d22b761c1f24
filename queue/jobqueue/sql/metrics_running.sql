-- metrics_running: how many jobs run, by band of a queue and by tenant, of the first `bound` leases.
-- params: bound
-- returns queue_id and priority, or tenant_id, and jobs
WITH leased AS MATERIALIZED (
        SELECT s.lane_id, count(*) AS jobs
        FROM (SELECT lane_id FROM queue_lease LIMIT %(bound)s::int) s GROUP BY s.lane_id
    )
SELECT l.queue_id, l.priority, l.tenant_id, sum(s.jobs)::float8
FROM leased s JOIN queue_lane l ON l.id = s.lane_id
GROUP BY GROUPING SETS ((l.queue_id, l.priority), (l.tenant_id))
