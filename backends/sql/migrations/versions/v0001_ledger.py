"""The ledger: deliveries, their guard, shared payloads, workers, views (docs/ledger.md)."""

from __future__ import annotations

import secrets

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# What both databases share; {text} is TEXT COLLATE "C" on PostgreSQL: bytes compare faster than words.
_COLUMNS = """
    delivery_key    {text}   NOT NULL,
    day             INTEGER  NOT NULL,
    token           BIGINT   NOT NULL,
    created_at      BIGINT   NOT NULL,
    updated_at      BIGINT   NOT NULL,
    expires_at      BIGINT   NOT NULL,
    next_at         BIGINT,
    kafka_offset    BIGINT,
    kafka_partition INTEGER,
    attempt         INTEGER  NOT NULL,
    owner_epoch     INTEGER  NOT NULL,
    version         INTEGER  NOT NULL DEFAULT 1,
    state           {text}   NOT NULL,
    lane            {text}   NOT NULL,
    owner           {text}   NOT NULL,
    message_id      {text}   NOT NULL,
    receiver        {bytes}  NOT NULL,
    body_digest     {bytes}  NOT NULL,
    policy_version  {text}   NOT NULL,
    biz_id          {text},
    reason          {text},
    provider_id     {text},
    account         {text},
    ordering_key    {text},
    resend_of       {text},
    kafka_topic     {text},
    payload         {bytes}
"""
_PAYLOAD_COLUMNS = """
    message_id  {text}  NOT NULL,
    day         INTEGER NOT NULL,
    body_digest {bytes} NOT NULL,
    payload     {bytes} NOT NULL,
    PRIMARY KEY (message_id, body_digest, day)
"""
_WORKERS = """
CREATE TABLE workers (
    id           {text}  PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    state        {text}  NOT NULL,
    lanes        TEXT    NOT NULL,
    threads      INTEGER NOT NULL,
    lease_ms     BIGINT  NOT NULL,
    started_at   BIGINT  NOT NULL,
    heartbeat_at BIGINT  NOT NULL
)"""
_INDEXES = (
    "CREATE INDEX deliveries_message ON deliveries (message_id)",
    "CREATE INDEX deliveries_biz ON deliveries (biz_id) WHERE biz_id IS NOT NULL",
    "CREATE INDEX deliveries_owned ON deliveries (owner, owner_epoch) WHERE state = 'IN_FLIGHT'",
    "CREATE INDEX deliveries_due ON deliveries (next_at) WHERE state = 'RETRY'",
    "CREATE INDEX deliveries_doubted ON deliveries (updated_at) WHERE state = 'UNKNOWN'",
    """CREATE INDEX deliveries_line ON deliveries (ordering_key, lane)
        WHERE ordering_key IS NOT NULL AND state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')""",
)
# Read-only and stable: others build on these names.
_DELIVERIES_VIEW = """
CREATE VIEW hongyan_deliveries AS
SELECT delivery_key, message_id, biz_id,
       {channel} AS channel, {kind} AS kind,
       lane, state, reason, attempt, owner, provider_id,
       created_at, updated_at, next_at, expires_at, policy_version, resend_of
  FROM deliveries"""
_WORKERS_VIEW = """
CREATE VIEW hongyan_workers AS
SELECT id, host, pid, state, lanes, threads, started_at, heartbeat_at FROM workers"""

_POSTGRES = (
    # The one clock. Tests replace it.
    """CREATE FUNCTION hongyan_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE
        AS $$ SELECT (extract(epoch FROM now()) * 1000)::bigint $$""",
    f"CREATE TABLE deliveries ({_COLUMNS}, PRIMARY KEY (delivery_key, day)) PARTITION BY LIST (day)",
    f"CREATE TABLE payloads ({_PAYLOAD_COLUMNS}) PARTITION BY LIST (day)",
    # A unique index on a partitioned table must hold the partition's key, and a message read again
    # after midnight must not count as new: so uniqueness lives here (docs/decisions/010).
    "CREATE TABLE delivery_keys (delivery_key {text} PRIMARY KEY, day INTEGER NOT NULL)",
    *_INDEXES,
    # Nothing is ever refused because a partition was not made in time.
    "CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT",
    "CREATE TABLE payloads_default PARTITION OF payloads DEFAULT",
    _WORKERS,
    _DELIVERIES_VIEW.format(
        channel="split_part(lane, '.', 1)", kind="split_part(lane, '.', 2)", text="{text}"
    ),
    _WORKERS_VIEW,
)
_SQLITE = (
    f"CREATE TABLE deliveries ({_COLUMNS}, PRIMARY KEY (delivery_key))",
    f"CREATE TABLE payloads ({_PAYLOAD_COLUMNS}) WITHOUT ROWID",
    *_INDEXES,
    _WORKERS,
    _DELIVERIES_VIEW.format(
        channel="substr(lane, 1, instr(lane, '.') - 1)",
        kind="substr(lane, instr(lane, '.') + 1)",
    ),
    _WORKERS_VIEW,
)


def upgrade() -> None:
    """Make everything; the database gets the random name that pre-filter marks carry."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    types = {"text": 'TEXT COLLATE "C"', "bytes": "BYTEA"} if is_postgres else {}
    types = types or {"text": "TEXT", "bytes": "BLOB"}
    run = op.get_bind().exec_driver_sql
    for statement in _POSTGRES if is_postgres else _SQLITE:
        run(statement.format(**types))
    run("CREATE TABLE ledger_identity (id TEXT PRIMARY KEY)")
    run(f"INSERT INTO ledger_identity VALUES ('{secrets.token_hex(6)}')")  # noqa: S608 - hex of ours
