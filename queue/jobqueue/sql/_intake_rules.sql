JOIN queue_policyrow p ON p.queue_id = l.queue_id
        LEFT JOIN tenants_tenantstate t ON t.tenant_id = l.tenant_id
        LEFT JOIN queue_kindrow k ON k.kind = l.kind
