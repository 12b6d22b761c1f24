-- A few hundred rows that every fold updates in place: room for that, and vacuum by count.
ALTER TABLE queue_queuetally SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);
