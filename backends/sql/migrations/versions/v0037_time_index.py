"""An index for windows of time. It has the rows in their order, wherever they stand (decision 290)."""

from __future__ import annotations

from alembic import op

from backends.sql.online_indexes import create_where_empty

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Names the index. `hongyan db upgrade` makes it afterwards where the ledger has rows."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    create_where_empty(op.get_bind().exec_driver_sql, "0037", is_postgres=is_postgres)
