"""An index separates due first sends from due retries (idempotency/recovery/statements.py)."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# Many rows of one kind do not hide the other kind. The order of the two times keeps a query for one kind
# off `deliveries_waiting`, which has both kinds.
_TURNS = """
CREATE INDEX deliveries_turns ON deliveries (lane, (attempt > 0), ({least}(expires_at, next_at)))
 WHERE state = 'RETRY'"""


def upgrade() -> None:
    """An index on rows that wait."""
    least = "least" if op.get_context().dialect.name == "postgresql" else "min"
    op.get_bind().exec_driver_sql(_TURNS.format(least=least))
