"""Lines: the open rows of one ordering key in one lane, in the order of their claims.

    head     the first open row of a line; it and the other receivers of its message may be sent
    asleep   a row behind the head: RETRY with `next_at = ASLEEP_AT`, later than any `expires_at`. The index
             of due rows has it at its `expires_at`, so that no look meets it before

Every transaction that ends an open row wakes the new head of its line. It holds the line's lock, as a
claim does (docs/decisions/013): a claim that still saw the old head open has then committed its row.
Line locks come before row locks, always: a transaction that holds row locks never waits for a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from backends.sql.pg_arrays import array
from idempotency.bounds import NEXT_VERSION, next_version
from idempotency.ledger import Settlement
from message.states import SETTLED, State, after

ASLEEP_AT: Final = 253_402_300_799_000
"""The last second of the year 9999, epoch milliseconds: longer than any chosen wait."""
PAGE: Final = 500
"""Lines that one statement reads."""

Execute = Callable[[str, dict[str, Any]], Any]
"""Runs a statement in the driver's own spelling; returns a cursor."""


class Line(NamedTuple):
    """One lane's open rows of one ordering key."""

    lane: str
    ordering_key: str


def head(columns: str, lane: str, ordering_key: str) -> str:
    """Returns a subquery for columns of `h`, the head of one line: one descent of an index."""
    return f"""
        SELECT {columns} FROM deliveries AS h
         WHERE h.lane = {lane} AND h.ordering_key = {ordering_key}
           AND h.ordering_key IS NOT NULL AND h.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
         ORDER BY h.created_at, coalesce(h.kafka_offset, -1), h.message_id LIMIT 1"""  # noqa: S608 - ours


_ASLEEP: Final = f"h.state = 'RETRY' AND h.next_at = {ASLEEP_AT}"

PG_LOCK: Final = """
SELECT pg_advisory_xact_lock(hashtextextended(line, 0)) FROM unnest(%(names)s::text[]) AS line"""

# Wakes all receivers of the message at the head: they share its place in the line.
PG_WAKE: Final = f"""
WITH heads AS MATERIALIZED (
    SELECT line.lane, line.ordering_key, first.message_id
      FROM unnest(%(lanes)s::text[], %(keys)s::text[]) AS line (lane, ordering_key)
     CROSS JOIN LATERAL ({head(f"h.message_id, {_ASLEEP} AS asleep", "line.lane", "line.ordering_key")}
           ) AS first
     WHERE first.asleep
)
UPDATE deliveries AS d SET next_at = hongyan_now(), version = {next_version("d")}
  FROM heads
 WHERE d.message_id = ANY (ARRAY[heads.message_id]) AND d.lane || '' = heads.lane
   AND d.ordering_key || '' = heads.ordering_key
   AND d.state || '' = 'RETRY' AND d.next_at = {ASLEEP_AT}"""  # noqa: S608 - ours

LITE_WAKE: Final = f"""
UPDATE deliveries SET next_at = :now, version = {NEXT_VERSION}
 WHERE message_id = ({head(f"CASE WHEN {_ASLEEP} THEN h.message_id END", ":lane", ":key")})
   AND +lane = :lane AND +ordering_key = :key
   AND +state = 'RETRY' AND next_at = {ASLEEP_AT}"""  # noqa: S608 - ours

# Goes from key to key by the index, from `start` on: the cost is that of the lines, not of the rows in
# them. Rows that an earlier version made may have an empty key.
WALK: Final = """
WITH RECURSIVE line (ordering_key) AS (
    SELECT (SELECT d.ordering_key FROM deliveries AS d
             WHERE d.lane = {lane} AND d.ordering_key >= {start} AND d.ordering_key IS NOT NULL
               AND d.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
             ORDER BY d.lane, d.ordering_key LIMIT 1)
     UNION ALL
    SELECT (SELECT d.ordering_key FROM deliveries AS d
             WHERE d.lane = {lane} AND d.ordering_key > line.ordering_key
               AND d.ordering_key IS NOT NULL
               AND d.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
             ORDER BY d.lane, d.ordering_key LIMIT 1)
      FROM line WHERE line.ordering_key IS NOT NULL
)"""
STUCK: Final = f"""{WALK}
SELECT line.ordering_key,
       ({head(f"{_ASLEEP} AND h.expires_at > {{now}}", "{lane}", "line.ordering_key")}) AS asleep
  FROM line WHERE line.ordering_key IS NOT NULL LIMIT {PAGE}"""  # noqa: S608 - ours

# Wakes the sleeping rows of a lane that keeps no order any more, some at a time.
ROUSE: Final = f"""
UPDATE deliveries SET next_at = {{now}}, version = {NEXT_VERSION}
 WHERE lane = {{lane}} AND state = 'RETRY' AND next_at = {ASLEEP_AT}
   AND delivery_key IN (
           SELECT d.delivery_key FROM deliveries AS d
            WHERE d.state = 'RETRY' AND d.lane = {{lane}} AND d.next_at = {ASLEEP_AT}
              AND {{least}}(d.next_at, d.expires_at) > {{now}}
            ORDER BY {{least}}(d.next_at, d.expires_at) LIMIT {{limit}})"""  # noqa: S608 - ours


class Lines(Protocol):
    """The statements on lines of one database; each within the caller's transaction."""

    def lock(self, execute: Execute, lines: Iterable[Line]) -> None:
        """Locks the lines until the transaction ends. Call it before the first row lock."""

    def wake(self, execute: Execute, lines: Iterable[Line], now: int) -> int:
        """Makes the heads that sleep due now. Returns the number of rows. The caller holds the locks."""


class PostgresLines:
    """Implements `Lines`: one statement for all lines."""

    def lock(self, execute: Execute, lines: Iterable[Line]) -> None:
        """See `Lines.lock`; sorted, so that two transactions lock in one order."""
        names = sorted({f"{line.lane}/{line.ordering_key}" for line in lines})
        if names:
            execute(PG_LOCK, {"names": array(names)})

    def wake(self, execute: Execute, lines: Iterable[Line], now: int) -> int:
        """See `Lines.wake`; the clock is the database's, `now` is not read."""
        several = list(set(lines))
        if not several:
            return 0
        lanes, keys = array([one.lane for one in several]), array([one[1] for one in several])
        return int(execute(PG_WAKE, {"lanes": lanes, "keys": keys}).rowcount)


class SqliteLines:
    """Implements `Lines`: the transaction is the only writer, so it holds every line."""

    def lock(self, execute: Execute, lines: Iterable[Line]) -> None:
        """See `Lines.lock`."""

    def wake(self, execute: Execute, lines: Iterable[Line], now: int) -> int:
        asked = [{"lane": one.lane, "key": one.ordering_key, "now": now} for one in set(lines)]
        return sum(execute(LITE_WAKE, values).rowcount for values in asked)


def line_ended(settlement: Settlement, ordered: frozenset[str]) -> Line | None:
    """Returns the line in which the settlement ends an open row; None in a lane that keeps no order."""
    lane, key = settlement.delivery.lane, settlement.delivery.notification.ordering_key
    if lane not in ordered or key is None:
        return None
    return Line(lane, key) if after(State.IN_FLIGHT, settlement.event) in SETTLED else None
