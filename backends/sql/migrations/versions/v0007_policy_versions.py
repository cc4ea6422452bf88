"""The policies that were applied, with author, time and what each changed (docs/policy.md)."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Only ever added to: the greatest number is in force. `at` is epoch milliseconds by the database's clock.
_TABLE = """
CREATE TABLE policy_versions (
    number  INTEGER PRIMARY KEY,
    -- As it stands on deliveries and in the trace.
    name    TEXT    NOT NULL,
    author  TEXT    NOT NULL,
    at      BIGINT  NOT NULL,
    text    TEXT    NOT NULL,
    -- Against the version before, in unified form.
    diff    TEXT    NOT NULL
)"""


def upgrade() -> None:
    """Make the table."""
    op.get_bind().exec_driver_sql(_TABLE)
