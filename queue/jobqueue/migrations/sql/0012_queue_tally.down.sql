ALTER TABLE queue_queuetally RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold
);
