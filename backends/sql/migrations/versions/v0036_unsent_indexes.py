"""Two indexes for searches of what ended unsent: by the class of an error, and by state (decision 283)."""

from __future__ import annotations

from alembic import op

from backends.sql.online_indexes import create_where_empty

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Names the indexes. `hongyan db upgrade` makes them afterwards where the ledger has rows."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    create_where_empty(op.get_bind().exec_driver_sql, "0036", is_postgres=is_postgres)
