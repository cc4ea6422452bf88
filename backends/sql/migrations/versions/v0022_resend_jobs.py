"""Resend jobs, their frozen items, and the key that signs their previews (docs/resend-jobs.md)."""

from __future__ import annotations

import secrets

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock. `idempotency/resend_jobs/contract.py` has the words.
_STATEMENTS = (
    """CREATE TABLE resend_jobs (
        id            {text}  PRIMARY KEY,
        -- again: the same key; copy: a new notification.
        mode          {text}  NOT NULL,
        state         {text}  NOT NULL,
        -- Counts the writes of the row. Each write names the version that it was decided on.
        version       INTEGER NOT NULL DEFAULT 1,
        -- JSON: the filter; empty states mean names (resend_job_names).
        wanted        TEXT    NOT NULL,
        -- JSON: canary, rate, error rate, approval threshold, as they were at its creation.
        limits        TEXT    NOT NULL,
        author        {text}  NOT NULL,
        reason        {text}  NOT NULL,
        created_at    BIGINT  NOT NULL,
        -- JSON: the place from which freezing or checking goes on.
        place         TEXT    NOT NULL DEFAULT '',
        frozen_at     BIGINT,
        preview_until BIGINT,
        -- Sum over the eligible items; 32 hex digits.
        digest        {text}  NOT NULL DEFAULT '',
        items         BIGINT  NOT NULL DEFAULT 0,
        eligible      BIGINT  NOT NULL DEFAULT 0,
        started_by    {text},
        started_at    BIGINT,
        start_reason  {text},
        approved_by   {text},
        approved_at   BIGINT,
        -- Start of the state.
        since         BIGINT  NOT NULL,
        -- Last time at which items were handed over.
        paced_at      BIGINT,
        -- JSON: sent and failed items as the judged period began.
        baseline      TEXT    NOT NULL DEFAULT '',
        -- State to which a resume leads.
        paused_from   {text},
        -- Who paused, cancelled or refused it, and why; `recovery` for itself.
        noted_by      {text},
        note          TEXT,
        cancelled     SMALLINT NOT NULL DEFAULT 0,
        ended_at      BIGINT
    )""",
    # The few jobs at which recovery looks every second.
    """CREATE INDEX resend_jobs_open ON resend_jobs (created_at, id)
        WHERE state NOT IN ('DONE', 'CANCELLED', 'REFUSED', 'LAPSED')""",
    "CREATE INDEX resend_jobs_newest ON resend_jobs (created_at, id)",
    # Uploaded names, until they are frozen.
    """CREATE TABLE resend_job_names (
        job_id  {text}  NOT NULL,
        number  INTEGER NOT NULL,
        name    {text}  NOT NULL,
        PRIMARY KEY (job_id, number)
    )""",
    # Keys are digests, so that the order of the primary key is a fair sample.
    """CREATE TABLE resend_job_items (
        job_id       {text}  NOT NULL,
        -- For an unknown name, the name.
        delivery_key {text}  NOT NULL,
        day          INTEGER NOT NULL,
        -- The row as it was frozen.
        row_version  INTEGER NOT NULL,
        attempt      INTEGER NOT NULL,
        state        {text}  NOT NULL,
        lane         {text}  NOT NULL,
        account      {text}  NOT NULL,
        fate         {text}  NOT NULL,
        -- Why it is not eligible, or how it ended.
        why          {text}  NOT NULL DEFAULT '',
        -- The copy's message id and delivery key.
        new_id       {text},
        new_key      {text},
        applied_at   BIGINT,
        ended_at     BIGINT,
        PRIMARY KEY (job_id, delivery_key)
    )""",
    """CREATE INDEX resend_job_items_pending ON resend_job_items (job_id, delivery_key)
        WHERE fate = 'PENDING'""",
    """CREATE INDEX resend_job_items_under_way ON resend_job_items (job_id, delivery_key)
        WHERE fate IN ('APPLYING', 'APPLIED')""",
    """CREATE INDEX resend_job_items_failed ON resend_job_items (job_id, delivery_key)
        WHERE fate IN ('FAILED', 'REFUSED')""",
    # Written with the items, so that nothing counts items.
    """CREATE TABLE resend_job_counts (
        job_id   {text}  NOT NULL,
        lane     {text}  NOT NULL,
        account  {text}  NOT NULL,
        fate     {text}  NOT NULL,
        why      {text}  NOT NULL,
        items    BIGINT  NOT NULL,
        PRIMARY KEY (job_id, lane, account, fate, why)
    )""",
    # One row: the key of the previews' signatures.
    "CREATE TABLE resend_job_key (signing_key {text} PRIMARY KEY)",
)


def upgrade() -> None:
    """Tables beside the others."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    run = op.get_bind().exec_driver_sql
    for statement in _STATEMENTS:
        run(statement.format(text=text))
    run(f"INSERT INTO resend_job_key VALUES ('{secrets.token_hex(32)}')")  # noqa: S608 - hex of ours
