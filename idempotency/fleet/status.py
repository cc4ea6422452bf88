"""Status of the fleet in the ledger: its processes, and the backlog of each lane.

Counts stop at a bound and read an index each, so that a look costs little however much waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, text

from backends.sql.database import Database
from idempotency.fleet.snapshots import ProcessSnapshot, decoded
from idempotency.lines import ASLEEP_AT
from idempotency.outcomes.outbox import OutcomesWaiting, outcomes_waiting
from idempotency.recovery.selection import ENDED
from idempotency.recovery.statements import BACKLOG_OF_DOUBT
from idempotency.transactions import Clock, LedgerPart

BOUND: Final = 10_000
"""Rows that one count looks at."""
LOST_WITHIN_MS: Final = 24 * 60 * 60 * 1_000
"""A process that was lost longer ago is not shown."""
MOST_PROCESSES: Final = 1_000

_PROCESSES: Final = text("""
SELECT id, kind, state, host, pid, lanes, threads, program, started_at, heartbeat_at, snapshot,
       state = 'DEAD' OR heartbeat_at + lease_ms < :now AS lost
  FROM workers
 WHERE state <> 'RETIRED' AND heartbeat_at > :since
 ORDER BY kind DESC, id LIMIT :limit""")
# Every owner is greater than this constant: the index on rows under way is read, and nothing else.
UNDER_WAY: Final = """
SELECT lane, count(*) AS rows
  FROM (SELECT d.lane FROM deliveries AS d
         WHERE d.state = 'IN_FLIGHT' AND d.owner > '' LIMIT :bound) AS flying
 GROUP BY lane"""
DUE: Final = """
SELECT count(*) AS due, min(since) AS oldest
  FROM (SELECT {least}(d.next_at, d.expires_at) AS since
          FROM deliveries AS d
         WHERE d.state = 'RETRY' AND d.lane = :lane AND {least}(d.next_at, d.expires_at) <= :now
         ORDER BY {least}(d.next_at, d.expires_at) LIMIT :bound) AS due"""
LATER: Final = f"""
SELECT coalesce(sum(1 - asleep - given_back), 0) AS later, coalesce(sum(asleep), 0) AS behind,
       coalesce(sum(given_back), 0) AS given_back,
       min(CASE WHEN asleep + given_back = 0 THEN since END) AS next_at
  FROM (SELECT {{least}}(d.next_at, d.expires_at) AS since,
               CASE WHEN d.next_at = {ASLEEP_AT} THEN 1 ELSE 0 END AS asleep,
               CASE WHEN d.reason = 'given_back' THEN 1 ELSE 0 END AS given_back
          FROM deliveries AS d
         WHERE d.state = 'RETRY' AND d.lane = :lane AND {{least}}(d.next_at, d.expires_at) > :now
         ORDER BY {{least}}(d.next_at, d.expires_at) LIMIT :bound) AS later"""  # noqa: S608 - ours
PARKED: Final = """
SELECT count(*) AS rows, min(since) AS oldest
  FROM (SELECT d.updated_at AS since FROM deliveries AS d
         WHERE d.state IN ({ended}) AND d.state = 'PARKED' AND d.lane = :lane
         ORDER BY d.updated_at, d.delivery_key LIMIT :bound) AS parked""".format(  # noqa: S608 - ours
    ended=", ".join(f"'{state}'" for state in ENDED)
)
_OF_LANES: Final = """
SELECT wanted.lane, found.*
  FROM unnest(CAST(:lanes AS text[])) AS wanted (lane) CROSS JOIN LATERAL ({part}) AS found"""
"""PostgreSQL alone: one part for all lanes. Together the parts would be planned as one statement over all
days, which takes longer than it runs."""


class Process(NamedTuple):
    """One worker or recovery. Times are epoch milliseconds by the database's clock."""

    id: str
    kind: str
    state: str
    """As of its last heartbeat; DEAD: a sweep ended its life."""
    host: str
    pid: int
    lanes: list[str]
    threads: int
    program: str
    """Its version; empty where unknown."""
    started_at: int
    heartbeat_at: int
    lost: bool
    """Its lease lapsed before it retired."""
    snapshot: ProcessSnapshot | None = None
    """As of its last heartbeat; None: it wrote none yet, or one of another version."""


class LaneStatus(NamedTuple):
    """Backlog of one lane. A count of 10,000 means: so many or more. Ages are in milliseconds, 0 where
    nothing is counted."""

    lane: str
    due: int
    """To be sent again now, or past its TTL."""
    oldest_due_ms: int
    later: int
    """Due at a later time."""
    next_at: int | None
    """Due time of the first of them, epoch milliseconds."""
    behind: int
    """Behind an earlier one of its ordering key."""
    given_back: int
    """Waiting for the next reader of its Kafka record, for a minute at most. It shares a bound with `later`
    and `behind`."""
    doubted: int
    oldest_doubt_ms: int
    in_flight: int
    """All lanes share one bound."""
    parked: int
    """Waiting for a person."""
    oldest_parked_ms: int

    @property
    def idle(self) -> bool:
        """Whether nothing is open or parked."""
        return not any(
            (self.due, self.later, self.behind, self.given_back, self.doubted, self.in_flight)
        ) and not (self.parked)


class FleetStatus(LedgerPart):
    """Nothing here writes. Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        least = "least" if database.is_postgres else "min"
        doubt = BACKLOG_OF_DOUBT.text
        self._parts = [part.format(least=least) for part in (DUE, LATER, doubt, PARKED)]

    def processes(self) -> list[Process]:
        """Returns workers, then recoveries: live ones, and ones lost within a day."""
        with self._begin() as (connection, now):
            asked = {"now": now, "since": now - LOST_WITHIN_MS, "limit": MOST_PROCESSES}
            found = connection.execute(_PROCESSES, asked).all()
        return [
            Process(
                **row._asdict()
                | {"lanes": [*filter(None, row.lanes.split(","))], "lost": bool(row.lost)}
                | {"snapshot": decoded(row.snapshot)}
            )
            for row in found
        ]

    def outcomes_waiting(self) -> list[OutcomesWaiting]:
        """Returns the outcome events that are not published, by target."""
        with self._begin() as (connection, now):
            return outcomes_waiting(connection, now)

    def lanes(self, lanes: Sequence[str]) -> list[LaneStatus]:
        """Returns the backlog of each of these lanes."""
        with self._begin() as (connection, now):
            flying = connection.execute(text(UNDER_WAY), {"bound": BOUND}).all()
            in_flight = {row.lane: row.rows for row in flying}
            asked = {"now": now, "bound": BOUND}
            found = [self._of_lanes(connection, part, lanes, asked) for part in self._parts]
        return [
            _status(lane, now, in_flight.get(lane, 0), [part[lane] for part in found])
            for lane in lanes
        ]

    def _of_lanes(
        self, connection: Connection, part: str, lanes: Sequence[str], asked: Mapping[str, int]
    ) -> dict[str, Row[Any]]:
        """Returns one part of the backlog by lane."""
        if not self._database.is_postgres:
            statement = text(part)
            return {
                lane: connection.execute(statement, {**asked, "lane": lane}).one() for lane in lanes
            }
        statement = text(_OF_LANES.format(part=part.replace(":lane", "wanted.lane")))
        rows = connection.execute(statement, {**asked, "lanes": list(lanes)})
        return {row.lane: row for row in rows}


def _status(lane: str, now: int, in_flight: int, parts: Sequence[Row[Any]]) -> LaneStatus:
    due, later, doubted, parked = parts
    return LaneStatus(
        lane=lane,
        due=due.due,
        oldest_due_ms=_age(now, due.oldest),
        later=later.later,
        next_at=later.next_at,
        behind=later.behind,
        given_back=later.given_back,
        doubted=doubted.rows,
        oldest_doubt_ms=_age(now, doubted.oldest),
        in_flight=in_flight,
        parked=parked.rows,
        oldest_parked_ms=_age(now, parked.oldest),
    )


def _age(now: int, since: int | None) -> int:
    return 0 if since is None else max(0, now - since)
