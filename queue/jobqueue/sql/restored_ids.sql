-- restored_ids: let new jobs have ids that cannot have been issued before the restore.
-- params: sequence (of job ids), skipped
-- returns the last id that is not issued any more
SELECT setval(
    %(sequence)s::text::regclass, coalesce(pg_sequence_last_value(%(sequence)s::text::regclass), 0) + %(skipped)s::bigint
)
