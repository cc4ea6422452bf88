"""Orders of a person to the fleet: pauses of lanes and accounts, and drains of processes.

Every process reads its orders once a second, in one statement. Rows are never deleted: they tell who
ordered what, why, and when it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from idempotency.error_mapping import connected
from idempotency.transactions import LedgerPart

REPLACED: Final = "replaced by another pause"
MOST_SHOWN: Final = 1_000
OBEYS_WITHIN_MS: Final = 5_000
"""Time within which a live process obeys an order."""
_NO_ACCOUNTS: Final[Mapping[str, int | None]] = MappingProxyType({})
_COLUMNS: Final = "lane, author, reason, paused_at, until, ended_at, ended_by, ended_reason"
# A pause that is past its end is over, even before its row says so.
_IN_FORCE: Final = "ended_at IS NULL AND (until IS NULL OR until > {now})"
_ORDERS: Final = f"""
SELECT 'pause', lane, until - {{now}}, author, reason FROM lane_pauses WHERE {_IN_FORCE}
UNION ALL
SELECT 'account', account, until - {{now}}, author, reason FROM account_pauses
 WHERE worker_id IN ('', {{value}}) AND {_IN_FORCE}
UNION ALL
SELECT 'drain', worker_id, NULL, author, reason FROM worker_drains
 WHERE worker_id = {{value}} AND asked_at >= {{value}}"""  # noqa: S608
_POSTGRES: Final = _ORDERS.format(now="hongyan_now()", value="%s")
_SQLITE: Final = _ORDERS.format(now="?", value="?")
_LOCK: Final = text("LOCK TABLE lane_pauses IN SHARE ROW EXCLUSIVE MODE")
_PAUSES: Final = text(f"""
SELECT {_COLUMNS} FROM lane_pauses WHERE {_IN_FORCE.format(now=":now")} ORDER BY lane""")  # noqa: S608
_HISTORY: Final = text(f"""
SELECT {_COLUMNS} FROM lane_pauses ORDER BY number DESC LIMIT :limit""")  # noqa: S608
_ADD: Final = text("""
INSERT INTO lane_pauses (lane, author, reason, paused_at, until)
VALUES (:lane, :author, :reason, :now, :until)""")
_LAPSE: Final = text("""
UPDATE lane_pauses SET ended_at = until WHERE lane = :lane AND ended_at IS NULL AND until <= :now""")
_END: Final = text(f"""
UPDATE lane_pauses SET ended_at = :now, ended_by = :author, ended_reason = :reason
 WHERE lane = :lane AND ended_at IS NULL
RETURNING {_COLUMNS}""")  # noqa: S608 - ours
_LIVES: Final = text("""
SELECT 1 FROM workers
 WHERE id = :worker AND state NOT IN ('DEAD', 'RETIRED') AND heartbeat_at + lease_ms >= :now""")
_DRAIN: Final = text("""
INSERT INTO worker_drains (worker_id, asked_at, author, reason)
VALUES (:worker, :now, :author, :reason) ON CONFLICT DO NOTHING""")


class LanePause(NamedTuple):
    """One pause. Times are epoch milliseconds by the database's clock."""

    lane: str
    author: str
    reason: str
    paused_at: int
    until: int | None
    """Its planned end; None: a person ends it."""
    ended_at: int | None = None
    """The time at which a person ended it, or another pause replaced it."""
    ended_by: str | None = None
    ended_reason: str | None = None

    def over_at(self, now: int) -> int | None:
        """Returns the time at which it ended; None if it is in force at `now`."""
        if self.ended_at is not None:
            return self.ended_at
        return self.until if self.until is not None and self.until <= now else None


class ControlOrders(NamedTuple):
    """The orders that one process must obey now."""

    paused: dict[str, int | None]
    """Lane to the milliseconds until its pause ends; None: no end is planned."""
    drain: str | None = None
    """Author and reason of the order to drain; None without one."""
    accounts: Mapping[str, int | None] = _NO_ACCOUNTS
    """Account to the milliseconds until its pause ends, of the fleet's pause and that of this process."""


class Controls(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def orders(self, worker: str, since_ms: int) -> ControlOrders:
        """Returns the pauses in force, and the drain of that process if it was ordered at `since_ms` (epoch
        milliseconds) or later. One statement, one round trip."""
        with connected(self._database) as connection:
            if self._database.is_postgres:
                asked: tuple[Any, ...] = (worker, worker, since_ms)
                found = connection.execute(_POSTGRES, asked).fetchall()
            else:
                now = self.clock(connection)
                asked = (now, now, now, worker, now, worker, since_ms)
                found = connection.execute(_SQLITE, asked).fetchall()
        paused = {lane: left for kind, lane, left, _, _ in found if kind == "pause"}
        drains = [f"{author}: {reason}" for kind, _, _, author, reason in found if kind == "drain"]
        accounts = _longest((name, left) for kind, name, left, _, _ in found if kind == "account")
        return ControlOrders(paused, drains[0] if drains else None, accounts)

    def pause(
        self, lanes: Sequence[str], for_ms: int | None, *, author: str, reason: str
    ) -> list[LanePause]:
        """Pauses the lanes, for so long or without a planned end. Returns the pauses that these replace."""
        with self._transaction() as connection:
            return self.pause_in(connection, lanes, for_ms, author=author, reason=reason)

    def pause_in(
        self,
        connection: Connection,
        lanes: Sequence[str],
        for_ms: int | None,
        *,
        author: str,
        reason: str,
    ) -> list[LanePause]:
        """As `pause`, in the caller's transaction."""
        replaced: list[LanePause] = []
        self._alone(connection)
        now = self.clock(connection)
        until = None if for_ms is None else now + for_ms
        for lane in lanes:
            replaced += self._end(connection, lane, now, author, REPLACED)
            values = {"lane": lane, "author": author, "reason": reason, "until": until}
            connection.execute(_ADD, {**values, "now": now})
        return replaced

    def resume(self, lanes: Sequence[str], *, author: str, reason: str) -> list[LanePause]:
        """Ends the pauses of the lanes. Returns those that were in force, as they ended."""
        with self._transaction() as connection:
            return self.resume_in(connection, lanes, author=author, reason=reason)

    def resume_in(
        self, connection: Connection, lanes: Sequence[str], *, author: str, reason: str
    ) -> list[LanePause]:
        """As `resume`, in the caller's transaction."""
        self._alone(connection)
        now = self.clock(connection)
        found = [self._end(connection, lane, now, author, reason) for lane in lanes]
        return [pause for of_lane in found for pause in of_lane]

    def pauses(self) -> list[LanePause]:
        """Returns the pauses in force."""
        with self._begin() as (connection, now):
            return [LanePause(*row) for row in connection.execute(_PAUSES, {"now": now})]

    def history(self, limit: int = MOST_SHOWN) -> list[LanePause]:
        """Returns up to `limit` pauses, the newest first."""
        with self._reading() as connection:
            return [LanePause(*row) for row in connection.execute(_HISTORY, {"limit": limit})]

    def drain(self, worker: str, *, author: str, reason: str) -> bool:
        """Orders a live process to drain. Returns False if no process of that name lives."""
        with self._transaction() as connection:
            return self.drain_in(connection, worker, author=author, reason=reason)

    def drain_in(self, connection: Connection, worker: str, *, author: str, reason: str) -> bool:
        """As `drain`, in the caller's transaction."""
        asked = {"worker": worker, "now": self.clock(connection)}
        if connection.execute(_LIVES, asked).first() is None:
            return False
        connection.execute(_DRAIN, {**asked, "author": author, "reason": reason})
        return True

    def _alone(self, connection: Connection) -> None:
        """Makes another command wait; readers go on."""
        if self._database.is_postgres:
            connection.execute(_LOCK)

    def _end(
        self, connection: Connection, lane: str, now: int, author: str, reason: str
    ) -> list[LanePause]:
        """Ends the lane's pause. Returns it if it was in force; one past its end only gets its time."""
        values: dict[str, Any] = {"lane": lane, "now": now}
        connection.execute(_LAPSE, values)
        ended = connection.execute(_END, {**values, "author": author, "reason": reason})
        return [LanePause(*row) for row in ended]


def _longest(found: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """Returns each account with the later of its ends: the fleet's pause and the process's own may meet."""
    paused: dict[str, int | None] = {}
    for account, left in found:
        before = paused.get(account, 0)
        paused[account] = None if left is None or before is None else max(left, before)
    return paused
