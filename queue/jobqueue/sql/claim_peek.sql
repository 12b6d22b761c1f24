-- claim_peek: whether there is anything in these bands for this caller; no lock.
-- params: queue_id, first (bands), kinds, tenant_id
-- plan: by index, once
SELECT {has_work}
