-- fold: add the oldest ledger rows to their minutes, and to the tallies that metrics are read from.
-- params: limit
-- returns how many rows were folded.  locks: ledger rows (SKIP LOCKED), then minutes, tallies and seconds in key order
WITH taken AS (
        DELETE FROM queue_lanedelta d
        USING (SELECT id FROM queue_lanedelta ORDER BY id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED) o
        WHERE d.id = o.id
        RETURNING d.lane_id, date_trunc('minute', d.at) AS minute, d.started, d.succeeded, d.failed, d.retried,
            d.lease_lost, d.dead, d.service_ms, d.at, d.firsts, d.promoted
    ),
    folded AS (
        INSERT INTO queue_laneminute AS m (
            lane_id, minute, started, succeeded, failed, retried, lease_lost, dead, service_ms
        )
        SELECT lane_id, minute, sum(started), sum(succeeded), sum(failed), sum(retried), sum(lease_lost), sum(dead),
            sum(service_ms)
        FROM taken GROUP BY lane_id, minute ORDER BY lane_id, minute
        ON CONFLICT (lane_id, minute) DO UPDATE SET
            started = m.started + excluded.started, succeeded = m.succeeded + excluded.succeeded,
            failed = m.failed + excluded.failed, retried = m.retried + excluded.retried,
            lease_lost = m.lease_lost + excluded.lease_lost, dead = m.dead + excluded.dead,
            service_ms = m.service_ms + excluded.service_ms
    ),
    tallied AS (
        INSERT INTO queue_queuetally AS y (
            queue_id, priority, started, firsts, promoted, succeeded, failed, retried, lease_lost, dead, service_ms
        )
        SELECT l.queue_id, l.priority, sum(t.started), sum(t.firsts), sum(t.promoted), sum(t.succeeded),
            sum(t.failed), sum(t.retried), sum(t.lease_lost), sum(t.dead), sum(t.service_ms)
        FROM taken t JOIN queue_lane l ON l.id = t.lane_id
        GROUP BY l.queue_id, l.priority ORDER BY l.queue_id, l.priority
        ON CONFLICT (queue_id, priority) DO UPDATE SET
            started = y.started + excluded.started, firsts = y.firsts + excluded.firsts,
            promoted = y.promoted + excluded.promoted, succeeded = y.succeeded + excluded.succeeded,
            failed = y.failed + excluded.failed, retried = y.retried + excluded.retried,
            lease_lost = y.lease_lost + excluded.lease_lost, dead = y.dead + excluded.dead,
            service_ms = y.service_ms + excluded.service_ms
    ),
    seconds AS (
        INSERT INTO queue_queuesecond AS s (queue_id, second, firsts, retries)
        SELECT l.queue_id, date_trunc('second', t.at), sum(t.firsts), sum(t.promoted)
        FROM taken t JOIN queue_lane l ON l.id = t.lane_id
        WHERE t.firsts > 0 OR t.promoted > 0
        GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (queue_id, second) DO UPDATE SET
            firsts = s.firsts + excluded.firsts, retries = s.retries + excluded.retries
    )
SELECT count(*) FROM taken
