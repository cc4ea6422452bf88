"""The database's schema, as Alembic migrations run by `hongyan db upgrade` (see backends.sql.schema)."""
