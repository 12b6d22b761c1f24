(CASE WHEN kind_version IS NULL THEN k.payload_schema IS NOT NULL OR k.dependency IS NOT NULL
                ELSE k.version IS DISTINCT FROM kind_version END)
