-- authenticator_look: an account's authenticator, and the time by which its codes are judged.
-- database: control
-- params: user_id, now
-- returns id, seed, is_confirmed, seconds since 1970.  no row: the account has none
SELECT a.id, a.seed, a.confirmed_at IS NOT NULL,
    extract(epoch FROM coalesce(%(now)s::timestamptz, clock_timestamp()))::float8
FROM tenants_authenticator a
WHERE a.user_id = %(user_id)s::bigint
