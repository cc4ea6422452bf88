"""The trace: one row holds what one flush knew of one message (docs/trace.md)."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COLUMNS = """
    day        INTEGER NOT NULL,
    at         BIGINT  NOT NULL,
    message_id {text}  NOT NULL,
    events     TEXT    NOT NULL
"""
_INDEX = "CREATE INDEX trace_events_message ON trace_events (message_id)"


def upgrade() -> None:
    """Ids begin with their time, so the one index grows at its end and stays cheap."""
    run = op.get_bind().exec_driver_sql
    if op.get_context().dialect.name == "postgresql":
        columns = _COLUMNS.format(text='TEXT COLLATE "C"')
        run(f"CREATE TABLE trace_events ({columns}) PARTITION BY LIST (day)")
        run(_INDEX)
        run("CREATE TABLE trace_events_default PARTITION OF trace_events DEFAULT")
    else:
        run(f"CREATE TABLE trace_events ({_COLUMNS.format(text='TEXT')})")
        run(_INDEX)
