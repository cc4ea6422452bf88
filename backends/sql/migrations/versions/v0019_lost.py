"""Runs of the Spark jobs, lost deliveries that they found, and the small tables that they fill."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

# Times are epoch milliseconds. Spark writes `lost_candidates` by JDBC, where a repeated task repeats rows.
# The run's end, one transaction, makes findings of them; rows of a run that did not end count for nothing.
_STATEMENTS = (
    """CREATE TABLE spark_runs (
        id          {number},
        -- ingest | rebuild | lost | audit
        job         {text}  NOT NULL,
        holder      {text}  NOT NULL,
        started_at  BIGINT  NOT NULL,
        ended_at    BIGINT,
        -- RUNNING | DONE | FAILED
        state       {text}  NOT NULL,
        -- Why it failed; one sentence.
        error       {text},
        -- JSON: committed offsets, log bounds and topic ids as they were before the ingest.
        positions   TEXT    NOT NULL DEFAULT '',
        -- The broker's time up to which everything was read.
        watermark   BIGINT,
        -- JSON: rows read and written, findings by cause, bytes shuffled, milliseconds per step.
        figures     TEXT    NOT NULL DEFAULT ''
    )""",
    "CREATE INDEX spark_runs_by_job ON spark_runs (job, id)",
    """CREATE TABLE lost_candidates (
        run_id       BIGINT  NOT NULL,
        -- The delivery key; for offsets nobody can name, `TOPIC/PARTITION/FIRST-LAST`.
        subject      {text}  NOT NULL,
        cause        {text}  NOT NULL,
        lane         {text}  NOT NULL,
        message_id   {text},
        biz_id       {text},
        receiver     {text},
        origin       {text},
        created_at   BIGINT,
        expires_at   BIGINT,
        -- 1: nothing can contradict it but the ledger at the moment of the resend.
        certain      SMALLINT NOT NULL,
        detail       {text}  NOT NULL,
        -- Sealed, for a record that Kafka no longer has.
        body         {bytes}
    )""",
    # In the order in which the run's end reads them, a page at a time.
    "CREATE INDEX lost_candidates_by_run ON lost_candidates (run_id, subject, cause)",
    """CREATE TABLE lost_findings (
        id           {number},
        subject      {text}  NOT NULL,
        cause        {text}  NOT NULL,
        lane         {text}  NOT NULL,
        message_id   {text},
        biz_id       {text},
        receiver     {text},
        origin       {text},
        created_at   BIGINT,
        expires_at   BIGINT,
        certain      SMALLINT NOT NULL,
        detail       {text}  NOT NULL,
        body         {bytes},
        first_run    BIGINT  NOT NULL,
        last_run     BIGINT  NOT NULL,
        found_at     BIGINT  NOT NULL,
        -- NEW | ASKED (a person must decide) | RESENT | EXPIRED | CONTRADICTED | DISMISSED | GONE
        status       {text}  NOT NULL,
        decided_at   BIGINT,
        decided_by   {text},
        decided_why  {text},
        UNIQUE (subject, cause)
    )""",
    "CREATE INDEX lost_findings_open ON lost_findings (status, id) WHERE status IN ('NEW', 'ASKED')",
    "CREATE INDEX lost_findings_by_lane ON lost_findings (lane, found_at)",
    """CREATE TABLE trace_hours (
        -- Start of the hour, by the broker.
        hour       BIGINT  NOT NULL,
        lane       {text}  NOT NULL,
        template   {text}  NOT NULL,
        account    {text}  NOT NULL,
        -- JSON: deliveries by funnel step, state and reason; duplicates; calls.
        counts     TEXT    NOT NULL,
        -- JSON: by stage [count, p50, p90, p99, max] in milliseconds.
        latencies  TEXT    NOT NULL,
        run_id     BIGINT  NOT NULL,
        PRIMARY KEY (hour, lane, template, account)
    )""",
    """CREATE TABLE trace_gaps (
        life       {text}  PRIMARY KEY,
        first_at   BIGINT  NOT NULL,
        last_at    BIGINT  NOT NULL,
        -- Events that arrived; missing numbers; lost before they got a number.
        events     BIGINT  NOT NULL,
        missing    BIGINT  NOT NULL,
        dropped    BIGINT  NOT NULL,
        -- 0: killed, or still running.
        ended      SMALLINT NOT NULL,
        run_id     BIGINT  NOT NULL
    )""",
    """CREATE TABLE trace_audits (
        hour       BIGINT  NOT NULL,
        lane       {text}  NOT NULL,
        -- JSON: counts by source, and their explained differences.
        counts     TEXT    NOT NULL,
        -- Deliveries whose difference nothing explains.
        unexplained BIGINT NOT NULL,
        run_id     BIGINT  NOT NULL,
        PRIMARY KEY (hour, lane)
    )""",
    """CREATE TABLE policy_texts (
        -- `file:DIGEST` or `default`; applied versions are in policy_versions.
        version   {text}  PRIMARY KEY,
        at        BIGINT  NOT NULL,
        text      TEXT    NOT NULL
    )""",
    """CREATE TABLE trace_doubles (
        delivery_key {text} PRIMARY KEY,
        lane         {text} NOT NULL,
        at           BIGINT NOT NULL,
        -- JSON: the attempts that the provider accepted.
        attempts     TEXT   NOT NULL,
        run_id       BIGINT NOT NULL
    )""",
)


def upgrade() -> None:
    """Tables beside the others."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    names = {
        "text": 'TEXT COLLATE "C"' if is_postgres else "TEXT",
        "bytes": "BYTEA" if is_postgres else "BLOB",
        "number": (
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
            if is_postgres
            else "INTEGER PRIMARY KEY"
        ),
    }
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(**names))
