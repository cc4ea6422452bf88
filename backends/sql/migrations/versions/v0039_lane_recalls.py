"""Recalls of a message in one lane (decision 308). The table is as it was; the kind `lane` is new."""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

# Asked once recalls live, by a claim that has locked the table before its snapshot. Older programs call the
# function without a lane, which stays. A lane has no colon, so the first one ends it.
_RECALLED = """
CREATE FUNCTION hongyan_recalled(message_id TEXT, biz_id TEXT, noted_at BIGINT, lane TEXT)
RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM recalls AS r
                    WHERE r.kind = 'message' AND r.name = $1 AND r.until > hongyan_now())
        OR EXISTS (SELECT FROM recalls AS r
                    WHERE r.kind = 'biz' AND r.name = $2 AND r.until > hongyan_now()
                      AND r.made_at >= $3)
        OR EXISTS (SELECT FROM recalls AS r
                    WHERE r.kind = 'lane' AND r.name = $4 || ':' || $1 AND r.until > hongyan_now())
$$"""


def upgrade() -> None:
    """Adds a function on PostgreSQL. SQLite's claims look for the rows themselves."""
    if op.get_context().dialect.name == "postgresql":
        op.get_bind().exec_driver_sql(_RECALLED)
