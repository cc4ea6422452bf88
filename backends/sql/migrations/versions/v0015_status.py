"""A heartbeat row names its kind of process and its program; the view has `refusals`."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_COLUMNS = (
    # worker or recovery.
    "kind {text} NOT NULL DEFAULT 'worker'",
    # The program's version; empty: registered by a version that did not give it.
    "program {text} NOT NULL DEFAULT ''",
)
# Columns are only ever added, at the end.
_DELIVERIES = """
CREATE VIEW hongyan_deliveries AS
SELECT delivery_key, message_id, biz_id,
       {channel} AS channel, {kind} AS kind,
       lane, state, reason, attempt, owner, provider_id,
       created_at, updated_at, next_at, expires_at, policy_version, resend_of, account, refusals
  FROM deliveries"""
_WORKERS = """
CREATE VIEW hongyan_workers AS
SELECT id, host, pid, state, lanes, threads, started_at, heartbeat_at, kind, program FROM workers"""
_PARTS = {
    "postgresql": {
        "channel": "split_part(lane, '.', 1)",
        "kind": "split_part(lane, '.', 2)",
    },
    "sqlite": {
        "channel": "substr(lane, 1, instr(lane, '.') - 1)",
        "kind": "substr(lane, instr(lane, '.') + 1)",
    },
}


def upgrade() -> None:
    """Two columns with constant defaults, which rewrite no row, and two views with more columns."""
    run, dialect = op.get_bind().exec_driver_sql, op.get_context().dialect.name
    is_postgres = dialect == "postgresql"
    for column in _COLUMNS:
        spelt = column.format(text='TEXT COLLATE "C"' if is_postgres else "TEXT")
        run(f"ALTER TABLE workers ADD COLUMN {spelt}")
    for view in (_DELIVERIES.format(**_PARTS[dialect]), _WORKERS):
        if is_postgres:  # rights that were granted on the view stay
            run(view.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
        else:
            run(f"DROP VIEW {view.split()[2]}")
            run(view)
