"""Alembic's entry: runs the migrations on the connection that backends.sql.schema holds, in its
transaction."""

from __future__ import annotations

from alembic import context

from backends.sql.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
