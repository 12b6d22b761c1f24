-- Jobs have named dependencies before they had states: each name gets one, without limits.
INSERT INTO queue_dependencystate (name)
SELECT DISTINCT dependency FROM queue_lane WHERE dependency <> '' ON CONFLICT DO NOTHING;

-- Consumed as fast as they are written.
ALTER TABLE queue_dependencydelta SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE queue_dependencystate SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);
ALTER TABLE queue_dependencytally SET (fillfactor = 50);
ALTER TABLE queue_queuesecond SET (fillfactor = 50);
