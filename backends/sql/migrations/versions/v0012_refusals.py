"""Calls that count as no attempt, and calls that make later waits no longer (docs/accounts.md, Pace)."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_COLUMNS = (
    # Of `attempt`, the calls that the provider refused for pace alone.
    "refusals INTEGER NOT NULL DEFAULT 0",
    # Of `attempt`, the calls that followed another at once under the same claim.
    "repeats INTEGER NOT NULL DEFAULT 0",
)
# Days in the archive take rows of the live table that strayed: their columns must be the same.
_ARCHIVED = """
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r'
   AND c.relname LIKE 'deliveries\\_%%'"""


def upgrade() -> None:
    """Two columns. A constant default rewrites no row: neither database touches the table's pages."""
    run, tables = op.get_bind().exec_driver_sql, ["deliveries"]
    if op.get_context().dialect.name == "postgresql":
        tables += [f'archive."{name}"' for (name,) in run(_ARCHIVED)]
    for table in tables:
        for column in _COLUMNS:
            run(f"ALTER TABLE {table} ADD COLUMN {column}")
