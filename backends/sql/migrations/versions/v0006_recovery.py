"""Indexes for recovery's queries, and a table of duties for its one scheduler (docs/recovery.md)."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_STATEMENTS = (
    # Lane by lane, so that a hundred thousand due rows of one do not delay another's. A row is looked at
    # when it is due or when it expires, whichever comes first.
    """CREATE INDEX deliveries_waiting ON deliveries (lane, ({least}(next_at, expires_at)))
        WHERE state = 'RETRY'""",
    "DROP INDEX deliveries_due",
    # next_at of a row in doubt: when it is asked about again.
    """CREATE INDEX deliveries_asked ON deliveries (lane, (coalesce(next_at, updated_at)))
        WHERE state = 'UNKNOWN'""",
    "DROP INDEX deliveries_doubted",
    # One holder at a time for each named duty, by the database's clock.
    """CREATE TABLE duties (
        name    {text}  PRIMARY KEY,
        holder  {text}  NOT NULL,
        until   BIGINT  NOT NULL
    )""",
)


def upgrade() -> None:
    """Two indexes in place of two, and a small table."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    names = {"least": "least", "text": 'TEXT COLLATE "C"'} if is_postgres else {}
    names = names or {"least": "min", "text": "TEXT"}
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(**names))
