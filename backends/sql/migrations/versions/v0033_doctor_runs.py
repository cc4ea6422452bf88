"""The results of doctor, for the console and for the comparison with the run before (docs/doctor.md)."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

# The newest few rows are kept. `at` is epoch milliseconds by the database's clock.
_TABLE = """
CREATE TABLE doctor_runs (
    number  INTEGER PRIMARY KEY,
    at      BIGINT  NOT NULL,
    host    TEXT    NOT NULL,
    -- The person of the console, or the user of the command.
    person  TEXT    NOT NULL,
    -- JSON: findings, what is not known, what passed, partitions.
    result  TEXT    NOT NULL
)"""


def upgrade() -> None:
    """Make the table."""
    op.get_bind().exec_driver_sql(_TABLE)
