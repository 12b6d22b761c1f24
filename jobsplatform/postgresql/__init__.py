"""Django's PostgreSQL backend with a memory of databases that do not answer."""
