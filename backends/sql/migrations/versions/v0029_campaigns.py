"""Campaigns, their runs, and the rows of crowd files that were not sent (docs/campaigns.md)."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock. `producer/campaigns/contract.py` has the words.
_STATEMENTS = (
    """CREATE TABLE campaigns (
        id            {text}  PRIMARY KEY,
        state         {text}  NOT NULL,
        -- Counts the writes of the row. Each write names the version that it was decided on.
        version       INTEGER NOT NULL DEFAULT 1,
        lane          {text}  NOT NULL,
        template      {text}  NOT NULL,
        -- JSON: path, format, encoding, size and SHA-256 of the crowd file, and its number of rows.
        crowd         TEXT    NOT NULL,
        -- JSON: columns of the file for receiver, biz id and variables; constants.
        columns       TEXT    NOT NULL,
        -- JSON: cron or the one time, and the time zone.
        schedule      TEXT    NOT NULL,
        -- JSON: rate, hours, error rate, approval threshold, as they were at its creation.
        limits        TEXT    NOT NULL,
        author        {text}  NOT NULL,
        reason        {text}  NOT NULL,
        created_at    BIGINT  NOT NULL,
        started_by    {text},
        started_at    BIGINT,
        approved_by   {text},
        approved_at   BIGINT,
        -- Time of the next run; null: none is planned.
        next_at       BIGINT,
        -- The open run, or the last one.
        run_id        {text},
        -- Start of the state.
        since         BIGINT  NOT NULL,
        -- State to which a resume leads.
        paused_from   {text},
        -- Who paused, resumed or cancelled it, and why; `campaigns` for the process itself.
        noted_by      {text},
        note          TEXT,
        ended_at      BIGINT
    )""",
    # The few campaigns at which the process looks every second.
    """CREATE INDEX campaigns_open ON campaigns (created_at, id)
        WHERE state IN ('SCHEDULED', 'RUNNING')""",
    "CREATE INDEX campaigns_newest ON campaigns (created_at, id)",
    """CREATE TABLE campaign_runs (
        id            {text}  PRIMARY KEY,
        campaign_id   {text}  NOT NULL,
        state         {text}  NOT NULL,
        version       INTEGER NOT NULL DEFAULT 1,
        -- The time for which it was planned.
        due_at        BIGINT  NOT NULL,
        started_at    BIGINT  NOT NULL,
        updated_at    BIGINT  NOT NULL,
        ended_at      BIGINT,
        -- The checkpoint: everything up to this row is settled. Bytes are those of the unpacked file.
        place         BIGINT  NOT NULL DEFAULT 0,
        line          BIGINT  NOT NULL DEFAULT 0,
        done          BIGINT  NOT NULL DEFAULT 0,
        sent          BIGINT  NOT NULL DEFAULT 0,
        bad           BIGINT  NOT NULL DEFAULT 0,
        repeated      BIGINT  NOT NULL DEFAULT 0,
        -- JSON: rows and bad rows at the start of the period that is judged.
        baseline      TEXT    NOT NULL DEFAULT '',
        -- JSON: by partition, the offset after the last acknowledged record of the run.
        positions     TEXT    NOT NULL DEFAULT ''
    )""",
    "CREATE INDEX campaign_runs_of ON campaign_runs (campaign_id, due_at)",
    # The first ones of each run, by line.
    """CREATE TABLE campaign_bad_rows (
        run_id        {text}  NOT NULL,
        line          BIGINT  NOT NULL,
        code          {text}  NOT NULL,
        detail        TEXT    NOT NULL,
        PRIMARY KEY (run_id, line)
    )""",
)


def upgrade() -> None:
    """Tables beside the others."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    run = op.get_bind().exec_driver_sql
    for statement in _STATEMENTS:
        run(statement.format(text=text))
