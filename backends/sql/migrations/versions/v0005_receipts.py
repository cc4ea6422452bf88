"""Receipts, kept until their delivery is found (docs/receipts.md)."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Times are epoch milliseconds; received_at, next_at and applied_at by the database's clock.
_TABLE = """
CREATE TABLE receipts (
    account     {text}  NOT NULL,
    -- What the provider named: its own id, the call's key as we gave it, or both; '' for none.
    provider_id {text}  NOT NULL,
    call_key    {text}  NOT NULL,
    -- Digests of the receiver's possible spellings, by commas; '' where the receipt names none.
    receivers   {text}  NOT NULL,
    state       {text}  NOT NULL,
    code        {text},
    -- When it happened, as the provider says.
    at          BIGINT  NOT NULL,
    received_at BIGINT  NOT NULL,
    tries       INTEGER NOT NULL DEFAULT 0,
    -- When it is looked at next; NULL: never again.
    next_at     BIGINT,
    -- What became of it: applied, repeated, contradicted, expired; NULL: still open.
    applied     {text},
    applied_at  BIGINT,
    delivery_key {text},
    -- A provider that repeats itself says nothing new.
    PRIMARY KEY (account, provider_id, call_key, receivers, state)
)"""
_INDEXES = (
    "CREATE INDEX receipts_open ON receipts (next_at) WHERE next_at IS NOT NULL",
    "CREATE INDEX receipts_received ON receipts (received_at)",
    # A delivery without a provider's id is found by the key of its call. In flight it needs no receipt yet,
    # so that a send that goes well pays for no entry here.
    """CREATE INDEX deliveries_call_key ON deliveries (call_key)
        WHERE call_key IS NOT NULL AND provider_id IS NULL AND state IN ('UNKNOWN', 'SENT')""",
)


def upgrade() -> None:
    """Makes a table with one row per receipt."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    run = op.get_bind().exec_driver_sql
    run(_TABLE.format(text='TEXT COLLATE "C"' if is_postgres else "TEXT"))
    for statement in _INDEXES:
        run(statement)
