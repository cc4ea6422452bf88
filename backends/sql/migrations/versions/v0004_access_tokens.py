"""Access tokens of the providers, kept for the whole fleet without Redis or while it is away."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# One row per account and credentials. Times are epoch milliseconds of the database's clock.
_TABLE = """
CREATE TABLE access_tokens (
    name        {text} PRIMARY KEY,
    -- SHA-256 of the token: processes compare tokens without opening them.
    digest      {text} NOT NULL DEFAULT '',
    -- The token, sealed with a key made of the account's own credentials.
    sealed      {bytes},
    fetched_at  BIGINT NOT NULL DEFAULT 0,
    expires_at  BIGINT NOT NULL DEFAULT 0,
    -- Who is asking the provider for a new one, and until when nobody else may.
    fence       {text} NOT NULL DEFAULT '',
    lease_until BIGINT NOT NULL DEFAULT 0
)"""


def upgrade() -> None:
    """Make the table."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text, kind = ('TEXT COLLATE "C"', "BYTEA") if is_postgres else ("TEXT", "BLOB")
    op.get_bind().exec_driver_sql(_TABLE.format(text=text, bytes=kind))
