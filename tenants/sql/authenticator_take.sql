-- authenticator_take: take the code of a half minute, once: it and those before it are used up. The first one confirms.
-- database: control
-- params: id, step, is_confirmed (whether it must be in use, or must not be yet), now
-- returns id.  no row: that code or a later one was taken before, or the authenticator is another by now
-- locks: its row
UPDATE tenants_authenticator a SET
    last_step = %(step)s::bigint,
    confirmed_at = coalesce(a.confirmed_at, %(now)s::timestamptz, clock_timestamp())
WHERE a.id = %(id)s::bigint AND a.last_step < %(step)s::bigint
    AND (a.confirmed_at IS NOT NULL) = %(is_confirmed)s::bool
RETURNING a.id
