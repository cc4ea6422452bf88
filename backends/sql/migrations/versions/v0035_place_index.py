"""An index for searches by a record's place (decision 280)."""

from __future__ import annotations

from alembic import op

from backends.sql.online_indexes import create_now

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Names the index. `hongyan db upgrade` makes it afterwards, while claims go on; here it is made for a
    ledger without rows, and on SQLite."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    run = op.get_bind().exec_driver_sql
    if not is_postgres or not run("SELECT EXISTS (SELECT 1 FROM deliveries)").scalar_one():
        create_now(run, "0035", is_postgres=is_postgres)
