"""Columns that recovery needs of a call before it is made: key, digest of the body, time of the first."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_STATEMENTS = (
    # The call's name at the provider; NULL: the delivery's own key.
    "ALTER TABLE deliveries ADD COLUMN call_key {text}",
    # Digest of the body's bytes, for a provider that dedups by them.
    "ALTER TABLE deliveries ADD COLUMN call_digest {text}",
    # Epoch milliseconds of the earliest call whose outcome is open; NULL: none was made since the last
    # definite outcome. A provider's dedup window counts from here.
    "ALTER TABLE deliveries ADD COLUMN called_at BIGINT",
    # Receipts name what the provider named; our own webhook protocol has none, and pays for none.
    """CREATE INDEX deliveries_provider_id ON deliveries (provider_id)
        WHERE provider_id IS NOT NULL AND substr(lane, 1, 8) <> 'webhook.'""",
)


def upgrade() -> None:
    """Adds columns without rewriting a row."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(
            statement.format(text='TEXT COLLATE "C"' if is_postgres else "TEXT")
        )
