DROP TRIGGER tenants_audit_only_grows ON tenants_auditentry;
DROP FUNCTION tenants_audit_only_grows_v1();
DROP FUNCTION tenants_audit_hash_v1(bytea, bigint, text, text, text, text, jsonb, bytea, bytea, text, timestamptz);
