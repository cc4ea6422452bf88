"""Time of the latest call in doubt, and accounts of the earlier ones (decision 093)."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_COLUMNS = (
    # Recovery writes both; a live claim leaves them as they are. So they hold only while `called_at`, the
    # time of the first call in doubt, is earlier. Epoch milliseconds.
    "last_called_at BIGINT",
    # Names of other accounts that earlier calls in doubt went through, a line each.
    "earlier_accounts TEXT",
)
# Days in the archive take rows of the live table that strayed: their columns must be the same.
_ARCHIVED = """
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r'
   AND c.relname LIKE 'deliveries\\_%%'"""


def upgrade() -> None:
    """Two columns. Without a default no row is rewritten: neither database touches the table's pages."""
    run, tables = op.get_bind().exec_driver_sql, ["deliveries"]
    if op.get_context().dialect.name == "postgresql":
        tables += [f'archive."{name}"' for (name,) in run(_ARCHIVED)]
    for table in tables:
        for column in _COLUMNS:
            run(f"ALTER TABLE {table} ADD COLUMN {column}")
