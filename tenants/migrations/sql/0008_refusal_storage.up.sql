-- Rows that live until the next fold are vacuumed by count.
ALTER TABLE tenants_refusaldelta SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
