"""Indexes deliveries that ended unsent by lane, state and time; the view names the account."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# A claim enters EXPIRED and DROPPED here, and nothing else: what is sent costs this index nothing.
_ENDED = """
CREATE INDEX deliveries_ended ON deliveries (state, lane, updated_at, delivery_key)
 WHERE state IN ('PARKED', 'REJECTED', 'EXPIRED', 'UNDELIVERED', 'DROPPED')"""
# Columns are only ever added, at the end.
_VIEW = """
CREATE{replace} VIEW hongyan_deliveries AS
SELECT delivery_key, message_id, biz_id,
       {channel} AS channel, {kind} AS kind,
       lane, state, reason, attempt, owner, provider_id,
       created_at, updated_at, next_at, expires_at, policy_version, resend_of, account
  FROM deliveries"""
_POSTGRES = _VIEW.format(
    replace=" OR REPLACE",
    channel="split_part(lane, '.', 1)",
    kind="split_part(lane, '.', 2)",
)
_SQLITE = _VIEW.format(
    replace="",
    channel="substr(lane, 1, instr(lane, '.') - 1)",
    kind="substr(lane, instr(lane, '.') + 1)",
)


def upgrade() -> None:
    """One partial index, and a view with one column more."""
    run = op.get_bind().exec_driver_sql
    run(_ENDED)
    if op.get_context().dialect.name == "postgresql":
        run(_POSTGRES)
    else:
        run("DROP VIEW hongyan_deliveries")
        run(_SQLITE)
