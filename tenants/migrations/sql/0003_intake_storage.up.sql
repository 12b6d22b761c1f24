-- Rows updated in place need room beside them, and rows that live for a millisecond are vacuumed by count.
ALTER TABLE tenants_allowance SET (
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE tenants_reservation SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
