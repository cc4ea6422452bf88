"""A hash of receivers without their channel, for searches (decision 294)."""

from __future__ import annotations

from alembic import op

from backends.sql.online_indexes import REPLACED, create_where_empty

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

# Keyed hash of the receiver's text (message/receiver_hash.py), 16 bytes; NULL without `outcomes.hash_key`,
# and in rows of older programs.
_COLUMN = "receiver_text_hash"
# Days in the archive take rows of the live table that strayed: their columns must be the same.
_ARCHIVED = """
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r'
   AND c.relname LIKE 'deliveries\\_%%'"""
_LOCK = ("SET LOCAL statement_timeout = 1000", "LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE")


def upgrade() -> None:
    """Adds a column without a default, which rewrites no row, and names two indexes. `hongyan db upgrade`
    makes them afterwards where the ledger has rows; the next one drops the one that they replace."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    run, tables = op.get_bind().exec_driver_sql, ["deliveries"]
    if is_postgres:
        before = run("SHOW statement_timeout").scalar_one()
        for statement in _LOCK:
            run(statement)
        run(f"SET LOCAL statement_timeout = '{before}'")
        tables += [f'archive."{name}"' for (name,) in run(_ARCHIVED)]  # no day moves there now
    for table in tables:
        run(f"ALTER TABLE {table} ADD COLUMN {_COLUMN} {'BYTEA' if is_postgres else 'BLOB'}")
    create_where_empty(run, "0038", is_postgres=is_postgres)
    if not is_postgres:
        for name in REPLACED:
            run(f"DROP INDEX IF EXISTS {name}")
