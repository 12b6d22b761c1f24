-- SHA-256 over the seal of the entry before and every column of this one, each with its length.
CREATE FUNCTION tenants_audit_hash_v1(
    previous_hash bytea, tenant_id bigint, actor text, action text, target text, reason text, details jsonb,
    before_hash bytea, after_hash bytea, request_id text, at timestamptz
) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(convert_to(string_agg(coalesce(length(part) || ':' || part, '-'), ',' ORDER BY ord), 'UTF8'))
    FROM unnest(ARRAY[
        encode(previous_hash, 'hex'), tenant_id::text, actor, action, target, reason, details::text,
        encode(before_hash, 'hex'), encode(after_hash, 'hex'), request_id,
        to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')
    ]) WITH ORDINALITY AS parts(part, ord)
$$;

CREATE FUNCTION tenants_audit_only_grows_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER tenants_audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON tenants_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_audit_only_grows_v1();
