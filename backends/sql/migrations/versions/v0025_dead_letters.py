"""The index of dead letters, and how far it has read their topic (docs/dead-letters.md, Index)."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

# Times are epoch milliseconds. `idempotency/dead_letters/rows.py` has the words.
_STATEMENTS = (
    """CREATE TABLE dead_letters (
        -- topic/partition/offset where the record was poison; without one, its place below.
        origin        {text}  PRIMARY KEY,
        -- Place among the dead letters.
        partition     INTEGER NOT NULL,
        place         BIGINT  NOT NULL,
        -- Time of the letter, by the broker's or the worker's clock.
        at            BIGINT  NOT NULL,
        reason        {text}  NOT NULL,
        detail        TEXT    NOT NULL,
        -- Empty: the origin's topic belongs to no lane.
        lane          {text}  NOT NULL,
        message_id    {text}  NOT NULL,
        -- Bytes of the whole value.
        size          BIGINT  NOT NULL,
        -- WHOLE | CUT | STUB | FOREIGN
        form          {text}  NOT NULL,
        -- Of the value, 32 hex digits: a topic that was made anew gives an origin twice.
        digest        {text}  NOT NULL,
        -- OPEN | REPLAYED | DISCARDED
        state         {text}  NOT NULL,
        ended_at      BIGINT,
        -- Person; empty: the command line.
        ended_by      {text},
        why           TEXT
    )""",
    "CREATE INDEX dead_letters_newest ON dead_letters (at, origin)",
    "CREATE INDEX dead_letters_by_state ON dead_letters (state, at, origin)",
    "CREATE INDEX dead_letters_by_reason ON dead_letters (reason, at, origin)",
    "CREATE INDEX dead_letters_by_lane ON dead_letters (lane, at, origin)",
    # Kafka removed what is before a place.
    "CREATE INDEX dead_letters_by_place ON dead_letters (partition, place)",
    """CREATE TABLE dead_letter_places (
        partition    INTEGER PRIMARY KEY,
        -- Kafka's id of the topic: another one is another topic of that name.
        topic_id     {text}  NOT NULL,
        next_offset  BIGINT  NOT NULL,
        -- The topic's end as it was seen last, and when.
        end_offset   BIGINT  NOT NULL,
        seen_at      BIGINT  NOT NULL
    )""",
)


def upgrade() -> None:
    """Tables beside the others."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement.format(text=text))
