DROP VIEW tenants_limithere;
