-- space_last: where the numbering of jobs stands.
SELECT last_value FROM queue_job_id_seq
