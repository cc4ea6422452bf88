"""Pauses of accounts, and acknowledgements of alerts (decisions 196 and 197)."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock. Rows are kept: they are the history.
_STATEMENTS = (
    """CREATE TABLE account_pauses (
        number       {number},
        account      {text}  NOT NULL,
        -- Empty: the whole fleet.
        worker_id    {text}  NOT NULL DEFAULT '',
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
    """CREATE UNIQUE INDEX account_pauses_open ON account_pauses (account, worker_id)
        WHERE ended_at IS NULL""",
    # An acknowledgement counts for the alert that was open then: one before `since` is no more.
    "ALTER TABLE alerts ADD COLUMN acknowledged_at BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE alerts ADD COLUMN acknowledged_by {text} NOT NULL DEFAULT ''",
    "ALTER TABLE alerts ADD COLUMN acknowledged_why {text} NOT NULL DEFAULT ''",
)


def upgrade() -> None:
    """A small table, and columns with constant defaults, which rewrite no row."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    number = (
        "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY" if is_postgres else "INTEGER PRIMARY KEY"
    )
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(text=text, number=number))
