"""SQL: engine and migrations, the schema, errors by class, and what PostgreSQL needs of its own."""
