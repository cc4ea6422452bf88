"""Alerts with their text, state and posts, and silences with their author (docs/alerts.md)."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock.
_COLUMNS = (
    "lane {text} NOT NULL DEFAULT ''",
    "about {text} NOT NULL DEFAULT ''",
    "text {text} NOT NULL DEFAULT ''",
    # 1: raised at each look until it is over. 0: a thing that happened.
    "lasting SMALLINT NOT NULL DEFAULT 0",
    # firing | cleared | ended (what happened, once its window is over); empty: from an earlier version.
    "state {text} NOT NULL DEFAULT ''",
    "since BIGINT NOT NULL DEFAULT 0",
    "last_at BIGINT NOT NULL DEFAULT 0",
    # How often it came up while it was silenced.
    "silenced BIGINT NOT NULL DEFAULT 0",
    "told_by {text} NOT NULL DEFAULT ''",
    # The post that has not reached the webhook; next_try is NULL when there is none.
    "post_state {text} NOT NULL DEFAULT ''",
    "post_count BIGINT NOT NULL DEFAULT 0",
    "post_at BIGINT NOT NULL DEFAULT 0",
    "next_try BIGINT",
    "tries INTEGER NOT NULL DEFAULT 0",
    "post_error {text} NOT NULL DEFAULT ''",
)
_REST = (
    "CREATE INDEX alerts_to_post ON alerts (next_try) WHERE next_try IS NOT NULL",
    # An empty subject: every alert of the rule.
    """CREATE TABLE alert_silences (
        rule     {text}  NOT NULL,
        subject  {text}  NOT NULL,
        until    BIGINT  NOT NULL,
        author   {text}  NOT NULL,
        reason   {text}  NOT NULL,
        made_at  BIGINT  NOT NULL,
        PRIMARY KEY (rule, subject)
    )""",
)


def upgrade() -> None:
    """More columns for a small table, an index, and a table beside it."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    for statement in (*(f"ALTER TABLE alerts ADD COLUMN {c}" for c in _COLUMNS), *_REST):
        op.get_bind().exec_driver_sql(statement.format(text=text))
