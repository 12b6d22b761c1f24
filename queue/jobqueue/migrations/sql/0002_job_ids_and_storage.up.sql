-- Job ids are the id space shifted left by 48 bits plus this sequence; space 0 begins at 1.
CREATE SEQUENCE queue_job_id_seq AS bigint MINVALUE 1;

-- Places are small and turn over quickly: vacuum by count, not by share, and leave room for updates in place.
ALTER TABLE queue_readyjob SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
ALTER TABLE queue_scheduledjob SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
ALTER TABLE queue_lease SET (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
ALTER TABLE queue_lanedelta SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE queue_lane SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE queue_laneminute SET (fillfactor = 50);
ALTER TABLE queue_horizon SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- A job is what was asked for: nobody changes it afterwards.
CREATE FUNCTION queue_job_is_immutable_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'queue_job is never updated; corrections are rows of their own' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER queue_job_is_immutable BEFORE UPDATE ON queue_job
    FOR EACH STATEMENT EXECUTE FUNCTION queue_job_is_immutable_v1();

-- A lease's fence never falls.
CREATE FUNCTION queue_lease_fence_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the generation and token of a lease never change' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER queue_lease_fence BEFORE UPDATE OF generation, token ON queue_lease
    FOR EACH ROW EXECUTE FUNCTION queue_lease_fence_v1();
