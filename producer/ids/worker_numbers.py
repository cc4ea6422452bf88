"""Worker numbers: leases by the database's clock, each with a high-water mark ahead of use.

No holder issues an id whose time is at or past the mark. A new holder begins at the mark. So two holders of
one number never issue the same id, even if both believe in their lease: the mark is the fence.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import text

from backends.sql.database import Database
from idempotency.transactions import Clock, LedgerPart
from message.ids import new_token
from message.snowflake import EPOCH_MS
from producer.ids.errors import ClockBehind, NoWorkerNumber

AHEAD_MS: Final = 5_000
"""Distance from the time of use to the mark that is written."""
MOST_BEHIND_MS: Final = 60_000
"""A free number whose mark is further ahead of the clock is not taken."""

# The number with the lowest mark: a number comes back as late as possible.
_TAKE: Final = """
UPDATE id_workers
   SET holder = :holder, token = :token, until = :until,
       mark = CASE WHEN mark > :now THEN mark ELSE :now END + :ahead
 WHERE number = (SELECT number FROM id_workers WHERE until < :now ORDER BY mark, number LIMIT 1 {lock})
   AND until < :now
RETURNING number, mark"""
_RENEW = text("""
UPDATE id_workers
   SET until = :until, mark = CASE WHEN mark > :mark THEN mark ELSE :mark END
 WHERE number = :number AND token = :token
RETURNING mark""")
_RETURN = text(
    "UPDATE id_workers SET until = 0, token = 0 WHERE number = :number AND token = :token"
)


class TakenNumber(NamedTuple):
    """A leased worker number; times are epoch milliseconds by the database's clock."""

    number: int
    token: int
    begin_ms: int
    """No earlier holder issued an id of this time or a later one."""
    mark_ms: int
    """The holder issues no id of this time or a later one, unless it raises the mark first."""
    now_ms: int


class RenewedNumber(NamedTuple):
    """The mark that is written, and the database's time."""

    mark_ms: int
    now_ms: int


class WorkerNumbers(LedgerPart):
    """Table id_workers. Every method is one transaction; the database's failures are LedgerErrors."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        lock = "FOR UPDATE SKIP LOCKED" if database.is_postgres else ""
        self._take = text(_TAKE.format(lock=lock))

    def take(self, holder: str, lease_ms: int) -> TakenNumber:
        """Leases a free number. Raises NoWorkerNumber or ClockBehind."""
        with self._begin() as (connection, now):
            token = new_token()
            wanted = {"holder": holder, "token": token, "until": now + lease_ms}
            row = connection.execute(
                self._take, wanted | {"now": max(now, EPOCH_MS), "ahead": AHEAD_MS}
            ).first()
            if row is None:
                raise NoWorkerNumber(
                    "every worker number is leased by a live process: end processes that "
                    "need no ids, or share one generator in each"
                )
            begin = row.mark - AHEAD_MS
            if begin - now > MOST_BEHIND_MS:  # the transaction is undone
                raise ClockBehind(
                    f"the database's clock is {(begin - now) // 1000} s behind ids that were "
                    "issued: set the clock, or wait until it has passed them"
                )
            return TakenNumber(row.number, token, begin, row.mark, now)

    def renew(self, taken: TakenNumber, used_ms: int, lease_ms: int) -> RenewedNumber | None:
        """Renews the lease, and raises the mark ahead of `used_ms` and of the clock. Returns None if
        another process has taken the number."""
        with self._begin() as (connection, now):
            wanted = {
                "number": taken.number,
                "token": taken.token,
                "until": now + lease_ms,
                "mark": max(used_ms, now) + AHEAD_MS,
            }
            row = connection.execute(_RENEW, wanted).first()
            return RenewedNumber(row.mark, now) if row else None

    def give_back(self, taken: TakenNumber) -> None:
        """Ends the lease; its mark stays."""
        with self._transaction() as connection:
            connection.execute(_RETURN, {"number": taken.number, "token": taken.token})

    def forget_connections(self) -> None:
        """Gives up the pool in a forked child, and leaves the parent's connections open."""
        self._database.engine.dispose(close=False)
