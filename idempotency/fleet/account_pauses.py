"""Pauses of accounts, in the whole fleet or in one process, as a person orders them.

A paused account is chosen for no delivery; its lanes go on through their other accounts. `Controls.orders`
gives the pauses to the processes. Rows are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from idempotency.fleet.controls import MOST_SHOWN, REPLACED
from idempotency.fleet.status import Process
from idempotency.transactions import LedgerPart

_COLUMNS: Final = (
    "account, worker_id, author, reason, paused_at, until, ended_at, ended_by, ended_reason"
)
_NAMED: Final = "account = :account AND worker_id = :worker AND ended_at IS NULL"
_LOCK: Final = text("LOCK TABLE account_pauses IN SHARE ROW EXCLUSIVE MODE")
_PAUSES: Final = text(f"""
SELECT {_COLUMNS} FROM account_pauses
 WHERE ended_at IS NULL AND (until IS NULL OR until > :now)
 ORDER BY account, worker_id LIMIT :limit""")  # noqa: S608 - ours
_HISTORY: Final = text(f"""
SELECT {_COLUMNS} FROM account_pauses ORDER BY number DESC LIMIT :limit""")  # noqa: S608 - ours
_ADD: Final = text("""
INSERT INTO account_pauses (account, worker_id, author, reason, paused_at, until)
VALUES (:account, :worker, :author, :reason, :now, :until)""")
_LAPSE: Final = text(f"UPDATE account_pauses SET ended_at = until WHERE {_NAMED} AND until <= :now")  # noqa: S608
_END: Final = text(f"""
UPDATE account_pauses SET ended_at = :now, ended_by = :author, ended_reason = :reason
 WHERE {_NAMED}
RETURNING {_COLUMNS}""")  # noqa: S608 - ours


class AccountPause(NamedTuple):
    """One pause. Times are epoch milliseconds by the database's clock."""

    account: str
    worker: str
    """The process that it is for; empty: the whole fleet."""
    author: str
    reason: str
    paused_at: int
    until: int | None
    """Its planned end; None: a person ends it."""
    ended_at: int | None = None
    ended_by: str | None = None
    ended_reason: str | None = None

    def over_at(self, now: int) -> int | None:
        """Returns the time at which it ended; None if it is in force at `now`."""
        if self.ended_at is not None:
            return self.ended_at
        return self.until if self.until is not None and self.until <= now else None

    def holds_for(self, process: str) -> bool:
        """Returns whether that process must obey it."""
        return self.worker in ("", process)


class AccountPauses(LedgerPart):
    """Every method is one transaction, or a part of the caller's, and raises LedgerError alone."""

    def pause(
        self, account: str, worker: str, for_ms: int | None, *, author: str, reason: str
    ) -> AccountPause | None:
        """Pauses the account for so long, or without a planned end. An empty worker: in the whole fleet.
        Returns the pause that this replaces."""
        with self._transaction() as connection:
            return self.pause_in(connection, account, worker, for_ms, author=author, reason=reason)

    def pause_in(
        self,
        connection: Connection,
        account: str,
        worker: str,
        for_ms: int | None,
        *,
        author: str,
        reason: str,
    ) -> AccountPause | None:
        """As `pause`, in the caller's transaction."""
        replaced = self._end(connection, account, worker, author, REPLACED)
        now = self.clock(connection)
        until = None if for_ms is None else now + for_ms
        values = {"account": account, "worker": worker, "author": author, "reason": reason}
        connection.execute(_ADD, {**values, "now": now, "until": until})
        return replaced

    def resume(self, account: str, worker: str, *, author: str, reason: str) -> AccountPause | None:
        """Ends the pause of that name. Returns it, as it ended; None if none was in force."""
        with self._transaction() as connection:
            return self.resume_in(connection, account, worker, author=author, reason=reason)

    def resume_in(
        self, connection: Connection, account: str, worker: str, *, author: str, reason: str
    ) -> AccountPause | None:
        """As `resume`, in the caller's transaction."""
        return self._end(connection, account, worker, author, reason)

    def pauses(self) -> list[AccountPause]:
        """Returns the pauses in force, at most 1,000."""
        with self._begin() as (connection, now):
            found = connection.execute(_PAUSES, {"now": now, "limit": MOST_SHOWN})
            return [AccountPause(*row) for row in found]

    def history(self, limit: int = MOST_SHOWN) -> list[AccountPause]:
        """Returns up to `limit` pauses, the newest first."""
        with self._reading() as connection:
            return [AccountPause(*row) for row in connection.execute(_HISTORY, {"limit": limit})]

    def _end(
        self, connection: Connection, account: str, worker: str, author: str, reason: str
    ) -> AccountPause | None:
        """Ends the pause. Returns it if it was in force; one past its end only gets its time."""
        if self._database.is_postgres:
            connection.execute(_LOCK)  # another person waits; readers go on
        now = self.clock(connection)
        values: dict[str, Any] = {"account": account, "worker": worker, "now": now}
        connection.execute(_LAPSE, values)
        ended = connection.execute(_END, {**values, "author": author, "reason": reason}).first()
        return None if ended is None else AccountPause(*ended)


def not_holding(
    account: str, processes: Iterable[Process], pauses: Iterable[AccountPause]
) -> list[str]:
    """Returns the live processes whose report of the account differs from the pauses in force."""
    of_account = [one for one in pauses if one.account == account]
    late = []
    for process in processes:
        shown = process.snapshot.accounts.get(account) if process.snapshot is not None else None
        wanted = any(pause.holds_for(process.id) for pause in of_account)
        if not process.lost and shown is not None and shown.paused is not wanted:
            late.append(process.id)
    return late
