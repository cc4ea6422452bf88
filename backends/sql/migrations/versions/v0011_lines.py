"""An index finds the head of a line by one descent, however long the line is (idempotency/lines.py)."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_STATEMENTS = (
    # In the order of a line: of two open rows the one that was claimed first comes first.
    """CREATE INDEX deliveries_heads
        ON deliveries (lane, ordering_key, created_at, (coalesce(kafka_offset, -1)), message_id)
     WHERE ordering_key IS NOT NULL AND state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')""",
    "DROP INDEX deliveries_line",
)


def upgrade() -> None:
    """An index in place of another."""
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
