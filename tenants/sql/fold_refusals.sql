-- fold_refusals: add the oldest refusals to their minutes.
-- params: limit
-- returns how many rows were folded.  locks: delta rows (SKIP LOCKED), then minutes in key order
WITH taken AS (
        DELETE FROM tenants_refusaldelta d
        USING (SELECT id FROM tenants_refusaldelta ORDER BY id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED) o
        WHERE d.id = o.id
        RETURNING d.tenant_id, d.queue, d.band, d.cause, date_trunc('minute', d.at) AS minute, d.jobs
    ),
    folded AS (
        INSERT INTO tenants_refusalminute AS m (tenant_id, queue, band, cause, minute, jobs)
        SELECT tenant_id, queue, band, cause, minute, sum(jobs)
        FROM taken GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (tenant_id, queue, band, cause, minute) DO UPDATE SET jobs = m.jobs + excluded.jobs
    )
SELECT count(*) FROM taken
