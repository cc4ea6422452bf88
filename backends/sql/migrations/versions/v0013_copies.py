"""An index finds the copies of a notification by their original."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# Only rows of copies are in it: a claim of anything else costs this index nothing.
_COPIES = """
CREATE INDEX deliveries_copies ON deliveries (resend_of, created_at)
 WHERE resend_of IS NOT NULL"""


def upgrade() -> None:
    """One partial index."""
    op.get_bind().exec_driver_sql(_COPIES)
