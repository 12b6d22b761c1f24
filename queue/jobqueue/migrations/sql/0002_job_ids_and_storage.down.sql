DROP TRIGGER queue_lease_fence ON queue_lease;
DROP FUNCTION queue_lease_fence_v1();
DROP TRIGGER queue_job_is_immutable ON queue_job;
DROP FUNCTION queue_job_is_immutable_v1();
ALTER TABLE queue_horizon RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE queue_laneminute RESET (fillfactor);
ALTER TABLE queue_lane RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE queue_lanedelta RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay
);
ALTER TABLE queue_lease RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold
);
ALTER TABLE queue_scheduledjob RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold
);
ALTER TABLE queue_readyjob RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold
);
DROP SEQUENCE queue_job_id_seq;
