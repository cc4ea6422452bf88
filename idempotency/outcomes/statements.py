"""SQL that writes ends into `outcome_batches`, in the transaction that makes them.

A worker's statements on PostgreSQL take the rows that they wrote from their own RETURNING: a delivery that
another process moved first is in no batch. Other writers know the keys that they wrote, and the batch is
made from these rows in the same transaction. Either way one batch has all ends of one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from backends.sql.database import Database
from backends.sql.pg_arrays import array
from idempotency.lines import Execute
from idempotency.outcomes.lanes import AnnouncedLanes
from message.outcome_event import ANNOUNCED


class EndedRow(NamedTuple):
    """One end in a batch, in the order of its columns."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    ordering_key: str | None
    lane: str
    state: str
    reason: str | None
    provider_id: str | None
    account: str | None
    attempt: int
    version: int
    created_at: int
    updated_at: int
    resend_of: str | None
    receiver: str
    """As the ledger has it, sealed or not, in hex digits."""


_STATES: Final = ", ".join(f"'{state}'" for state in ANNOUNCED)
_BATCH: Final = "INSERT INTO outcome_batches (target, written_at, next_at, size, ends)"


def returned(table: str = "") -> str:
    """Returns the columns of an end for a RETURNING clause."""
    dot = f"{table}." if table else ""
    return ", ".join(f"{dot}{column}" for column in EndedRow._fields)


_PG_ROW: Final = returned().replace("receiver", "encode(receiver, 'hex')")
_PG_BATCH: Final = f"""
    {_BATCH}
    SELECT target, hongyan_now(), hongyan_now(), count(*), json_agg(json_build_array({_PG_ROW}))::text
      FROM (SELECT *, CASE WHEN lane = ANY (%(to_topic)s::text[]) THEN 'topic'
                           WHEN lane = ANY (%(to_webhook)s::text[]) THEN 'webhook' END AS target
              FROM ({{rows}}) AS written) AS ended
     WHERE target IS NOT NULL AND state IN ({_STATES})
     GROUP BY target"""  # noqa: S608 - ours


def pg_announced(rows: str) -> str:
    """Returns a CTE that makes batches of the ends among `rows`, a query with the columns of `returned`."""
    return f"announced AS ({_PG_BATCH.format(rows=rows)})"


# As in idempotency.claims.postgres: "= ANY (ARRAY[…])" can use an index and nothing else.
PG_ANNOUNCE: Final = _PG_BATCH.format(
    rows=f"""
        SELECT {returned("d")} FROM unnest(%(keys)s::text[]) AS i (key)
          JOIN delivery_keys AS k ON k.delivery_key = ANY (ARRAY[i.key])
          JOIN deliveries AS d ON d.delivery_key = ANY (ARRAY[k.delivery_key]) AND d.day = k.day"""  # noqa: S608 - ours
)

_LITE_ROW: Final = returned().replace("receiver", "hex(receiver)")
LITE_ANNOUNCE: Final = f"""
{_BATCH}
SELECT target, :now, :now, count(*), json_group_array(json_array({_LITE_ROW}))
  FROM (SELECT *, CASE WHEN lane IN (SELECT value FROM json_each(:to_topic)) THEN 'topic'
                       WHEN lane IN (SELECT value FROM json_each(:to_webhook)) THEN 'webhook' END AS target
          FROM deliveries WHERE delivery_key IN (SELECT value FROM json_each(:keys))) AS ended
 WHERE target IS NOT NULL AND state IN ({_STATES})
 GROUP BY target"""  # noqa: S608 - ours

Announce = Callable[[Execute, Iterable[str], int], None]
"""Announces the ends among rows with these delivery keys, at this time, in the caller's transaction."""


def announcer(database: Database, lanes: AnnouncedLanes) -> Announce:
    """Returns the function for the database's kind. Give it only keys whose rows this transaction wrote.
    It sends nothing while no lane is announced."""

    def on_postgres(execute: Execute, keys: Iterable[str], _now: int) -> None:
        if lanes and (named := list(keys)):
            execute(PG_ANNOUNCE, {"keys": array(named), **lanes.arrays()})

    def on_sqlite(execute: Execute, keys: Iterable[str], now: int) -> None:
        if lanes and (named := list(keys)):
            asked: dict[str, Any] = {"keys": msgspec.json.encode(named).decode(), "now": now}
            execute(LITE_ANNOUNCE, asked | lanes.texts())

    return on_postgres if database.is_postgres else on_sqlite
