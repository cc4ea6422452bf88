"""Sums of settled deliveries by minute, and their roll-ups (docs/console.md, Sums)."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

# Times are epoch milliseconds. `idempotency/sums/sketch.py` has the form of the sketches.
_STATEMENTS = (
    # A process writes whole sums of its own minutes, never additions: a repeated write changes nothing.
    """CREATE TABLE minute_sums (
        minute     BIGINT NOT NULL,
        lane       {text} NOT NULL,
        account    {text} NOT NULL,
        -- The state that deliveries came to.
        outcome    {text} NOT NULL,
        -- One life of a process.
        process    {text} NOT NULL,
        deliveries BIGINT NOT NULL,
        -- Latency sketches; empty: no times.
        total      TEXT   NOT NULL DEFAULT '',
        intake     TEXT   NOT NULL DEFAULT '',
        queue      TEXT   NOT NULL DEFAULT '',
        call       TEXT   NOT NULL DEFAULT '',
        written_at BIGINT NOT NULL,
        PRIMARY KEY (minute, lane, account, outcome, process)
    )""",
    # The minutes that the next roll-up makes anew.
    "CREATE INDEX minute_sums_written ON minute_sums (written_at, minute)",
    # All processes together, by minute, ten minutes, hour and day.
    """CREATE TABLE span_sums (
        span       BIGINT NOT NULL,
        minute     BIGINT NOT NULL,
        lane       {text} NOT NULL,
        account    {text} NOT NULL,
        outcome    {text} NOT NULL,
        deliveries BIGINT NOT NULL,
        total      TEXT   NOT NULL DEFAULT '',
        intake     TEXT   NOT NULL DEFAULT '',
        queue      TEXT   NOT NULL DEFAULT '',
        call       TEXT   NOT NULL DEFAULT '',
        PRIMARY KEY (span, minute, lane, account, outcome)
    )""",
    # One row: everything written before this time is rolled up.
    "CREATE TABLE sum_marks (rolled_at BIGINT PRIMARY KEY)",
    "INSERT INTO sum_marks VALUES (0)",
)


def upgrade() -> None:
    """Tables beside the others."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    run = op.get_bind().exec_driver_sql
    for statement in _STATEMENTS:
        run(statement.format(text=text))
