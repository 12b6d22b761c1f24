-- fsck_range: where a range of job ids ends that holds at most `size` jobs.
-- params: low (null: from the beginning), size
-- returns the first id of the next range; no row: this is the last
SELECT id FROM queue_job
WHERE %(low)s::bigint IS NULL OR id >= %(low)s::bigint
ORDER BY id OFFSET %(size)s::int LIMIT 1
