"""Recalls, alerts sent, dead letters replayed (docs/recall.md, docs/alerts.md, docs/dead-letters.md)."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock.
_STATEMENTS = (
    # Orders to send something no more. Every claim looks here, under a lock that a new recall waits for.
    """CREATE TABLE recalls (
        -- `message`: a notification's id. `biz`: a business id, for what was created until made_at.
        kind     {text}  NOT NULL,
        name     {text}  NOT NULL,
        made_at  BIGINT  NOT NULL,
        -- Nothing that it is about can be sent after this.
        until    BIGINT  NOT NULL,
        PRIMARY KEY (kind, name)
    )""",
    "CREATE INDEX recalls_live ON recalls (until)",
    # Deliveries that a provider took back: the row itself stays SENT, since it was.
    """CREATE TABLE recalled (
        delivery_key {text}  PRIMARY KEY,
        at           BIGINT  NOT NULL
    )""",
    # The time at which the fleet last sent an alert, and how often it was held back since.
    """CREATE TABLE alerts (
        rule     {text}  NOT NULL,
        subject  {text}  NOT NULL,
        told_at  BIGINT  NOT NULL,
        kept     BIGINT  NOT NULL,
        PRIMARY KEY (rule, subject)
    )""",
    # Dead letters that were sent again; sent_at is NULL until the broker acknowledged.
    """CREATE TABLE dead_replays (
        origin   {text}  PRIMARY KEY,
        target   {text}  NOT NULL,
        begun_at BIGINT  NOT NULL,
        sent_at  BIGINT
    )""",
)

# Asked once recalls live, by a claim that has locked the table before its snapshot.
_RECALLED = """
CREATE FUNCTION hongyan_recalled(message_id TEXT, biz_id TEXT, noted_at BIGINT) RETURNS BOOLEAN
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM recalls AS r
                    WHERE r.kind = 'message' AND r.name = $1 AND r.until > hongyan_now())
        OR EXISTS (SELECT FROM recalls AS r
                    WHERE r.kind = 'biz' AND r.name = $2 AND r.until > hongyan_now()
                      AND r.made_at >= $3)
$$"""


def upgrade() -> None:
    """Four small tables."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(text=text))
    if is_postgres:
        op.get_bind().exec_driver_sql(_RECALLED)
