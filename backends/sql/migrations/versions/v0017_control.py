"""Pauses of lanes, orders to drain, and a snapshot in each heartbeat row (decisions 119 to 121)."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock. Rows are kept: they are the history.
_STATEMENTS = (
    """CREATE TABLE lane_pauses (
        number       {number},
        lane         {text}  NOT NULL,
        author       {text}  NOT NULL,
        reason       {text}  NOT NULL,
        paused_at    BIGINT  NOT NULL,
        -- It ends by itself at this time; NULL: a person ends it.
        until        BIGINT,
        -- NULL: nobody ended it. It is over all the same if `until` is past.
        ended_at     BIGINT,
        ended_by     {text},
        ended_reason {text}
    )""",
    # Every process reads this index once a second.
    "CREATE UNIQUE INDEX lane_pauses_open ON lane_pauses (lane) WHERE ended_at IS NULL",
    # An order counts for the life that was there when it was given.
    """CREATE TABLE worker_drains (
        worker_id  {text}  NOT NULL,
        asked_at   BIGINT  NOT NULL,
        author     {text}  NOT NULL,
        reason     {text}  NOT NULL,
        PRIMARY KEY (worker_id, asked_at)
    )""",
    # JSON of at most 8,000 characters (idempotency/fleet/snapshots.py); empty: the version before wrote it.
    "ALTER TABLE workers ADD COLUMN snapshot {text} NOT NULL DEFAULT ''",
)


def upgrade() -> None:
    """Two small tables, and a column with a constant default, which rewrites no row."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    number = (
        "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY" if is_postgres else "INTEGER PRIMARY KEY"
    )
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(text=text, number=number))
