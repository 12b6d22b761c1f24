(NOT l.is_active OR l.used_at < (SELECT clock_timestamp()) - interval '1 hour')
