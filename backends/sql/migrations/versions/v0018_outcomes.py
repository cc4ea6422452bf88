"""Batches of outcome events that wait for their publication (docs/outcomes.md)."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# One row for each statement that ended deliveries, and each target. Times are epoch milliseconds by the
# database's clock. An id is never given twice: a batch is deleted by its id after its publication.
_TABLE = """
CREATE TABLE outcome_batches (
    id          {id},
    -- topic | webhook
    target      {text}  NOT NULL,
    written_at  BIGINT  NOT NULL,
    -- When it is published, or tried again.
    next_at     BIGINT  NOT NULL,
    tries       INTEGER NOT NULL DEFAULT 0,
    -- Deliveries in `ends`.
    size        INTEGER NOT NULL,
    -- JSON: the columns of each row that ended (idempotency/outcomes/statements.py).
    ends        TEXT    NOT NULL
)"""
_INDEX = "CREATE INDEX outcome_batches_due ON outcome_batches (target, next_at)"
# Rows live for a second: the table is vacuumed by their number, not by its size.
_VACUUM = """
ALTER TABLE outcome_batches SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)"""
_IDS = {
    True: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    False: "INTEGER PRIMARY KEY AUTOINCREMENT",
}


def upgrade() -> None:
    """A table beside the others."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    text = 'TEXT COLLATE "C"' if is_postgres else "TEXT"
    run = op.get_bind().exec_driver_sql
    run(_TABLE.format(id=_IDS[is_postgres], text=text))
    run(_INDEX)
    if is_postgres:
        run(_VACUUM)
