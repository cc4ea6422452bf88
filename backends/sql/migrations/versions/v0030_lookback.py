"""Transactions of the look-back service, by the day in their tx_id (docs/lookback.md)."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock. `lookback/states.py` has the states.
_COLUMNS = """
    -- UUIDv7 of the business; its time is in it.
    tx_id         {text}   NOT NULL,
    -- Of that time, since 1970-01-01: the unique key holds the key of the partitions.
    day           INTEGER  NOT NULL,
    biz_type      {text}   NOT NULL,
    biz_id        {text}   NOT NULL,
    state         {text}   NOT NULL,
    -- A decision that came before its prepare: COMMIT | ROLLBACK, else empty.
    early         {text}   NOT NULL,
    -- COMMIT | ROLLBACK, written once; and business | check | operator. Empty: none yet.
    decision      {text}   NOT NULL,
    decided_by    {text}   NOT NULL,
    decided_at    BIGINT,
    person        TEXT     NOT NULL,
    why           TEXT     NOT NULL,
    -- Of the prepare; null: none came yet.
    topic         {text},
    msg_key       TEXT,
    headers       TEXT,
    body          {bytes},
    -- SHA-256 over topic, key, headers and payload.
    body_hash     {bytes},
    prepared_at   BIGINT,
    -- Why a person must decide: a code, a colon, a sentence.
    reason        TEXT     NOT NULL,
    -- Checks that were made, and forwards that failed.
    checks        INTEGER  NOT NULL,
    tries         INTEGER  NOT NULL,
    last_error    TEXT     NOT NULL,
    -- The first contradiction: its kind and its source.
    conflict      TEXT     NOT NULL,
    conflict_at   BIGINT,
    -- 0: nobody holds it. A write of a holder checks it.
    lease_token   BIGINT   NOT NULL,
    -- When it is looked at next, or its lease ends; null: never.
    next_at       BIGINT,
    -- topic/partition/offset of the forwarded record.
    forwarded_to  TEXT     NOT NULL,
    forwarded_at  BIGINT,
    created_at    BIGINT   NOT NULL,
    updated_at    BIGINT   NOT NULL,
    -- Counts writes: each compares and sets.
    version       INTEGER  NOT NULL,
    PRIMARY KEY (tx_id, day)"""
_INDEXES = (
    """CREATE INDEX lookback_to_check ON lookback_transactions (biz_type, next_at)
     WHERE state IN ('PREPARED', 'CHECKING')""",
    """CREATE INDEX lookback_early ON lookback_transactions (next_at)
     WHERE state IN ('EARLY_COMMIT', 'EARLY_ROLLBACK')""",
    "CREATE INDEX lookback_to_forward ON lookback_transactions (next_at) WHERE state = 'COMMITTED'",
    "CREATE INDEX lookback_unresolved ON lookback_transactions (tx_id) WHERE state = 'UNRESOLVED'",
    "CREATE INDEX lookback_by_biz_id ON lookback_transactions (biz_id)",
    "CREATE INDEX lookback_by_day ON lookback_transactions (day)",
)


def upgrade() -> None:
    """Makes the table; PostgreSQL keeps each day apart, and a day without its own partition by default."""
    run = op.get_bind().exec_driver_sql
    if op.get_context().dialect.name == "postgresql":
        columns = _COLUMNS.format(text='TEXT COLLATE "C"', bytes="BYTEA")
        run(f"CREATE TABLE lookback_transactions ({columns}) PARTITION BY LIST (day)")
        run("CREATE TABLE lookback_transactions_default PARTITION OF lookback_transactions DEFAULT")
    else:
        run(f"CREATE TABLE lookback_transactions ({_COLUMNS.format(text='TEXT', bytes='BLOB')})")
    for statement in _INDEXES:
        run(statement)
