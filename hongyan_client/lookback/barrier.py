"""The fenced check: one row in the business's own database decides who was first.

    business transaction   inserts `commit` with its own rows; both commit, or neither
    check                  inserts `rollback` in a transaction of its own, then reads the row

The primary key lets one of them in. A check that comes while the business transaction is open waits for
it. A business transaction that comes after the check gets TransactionFenced and must roll back. So an
answer ROLLBACK stays true. docs/decisions/244-a-check-fences-the-business.md.

PostgreSQL, MySQL, MariaDB and SQLite. The business makes the table with its own migrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from hongyan_client.lookback.errors import TransactionFenced
from hongyan_client.lookback.identity import TransactionRef, checked
from hongyan_client.lookback.transaction_state import StateReply, TransactionState
from hongyan_client.mysql_tables import MYSQL_TABLE

TABLE: Final = "hongyan_lookback_barriers"
_MS: Final = 1_000
_DEFAULT_WAIT_S: Final = 1.0
_COMMIT: Final = "commit"
_ROLLBACK: Final = "rollback"
_BOUNDS: Final = {
    "postgresql": ("", "SET LOCAL lock_timeout = {}"),
    "mysql": ("SELECT @@innodb_lock_wait_timeout", "SET SESSION innodb_lock_wait_timeout = {}"),
    "mariadb": ("SELECT @@innodb_lock_wait_timeout", "SET SESSION innodb_lock_wait_timeout = {}"),
    "sqlite": ("PRAGMA busy_timeout", "PRAGMA busy_timeout = {}"),
}
"""By dialect: the question for the connection's bound of a wait for locks, and the statement that sets it.
PostgreSQL's ends with the transaction, and needs no question."""
_IN_SECONDS: Final = ("mysql", "mariadb")
_STATES: Final = {_COMMIT: TransactionState.COMMIT, _ROLLBACK: TransactionState.ROLLBACK}


def barrier_table(metadata: sa.MetaData, name: str = TABLE) -> sa.Table:
    """Returns the table of barriers, added to `metadata`."""
    return sa.Table(
        name,
        metadata,
        sa.Column("barrier", sa.String(64), primary_key=True),
        sa.Column("biz_type", sa.String(64), nullable=False),
        sa.Column("biz_id", sa.String(256), nullable=False),
        sa.Column("tx_id", sa.String(32), nullable=False),
        sa.Column("decision", sa.String(8), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False, index=True),
        **MYSQL_TABLE,
    )


class Barrier:
    """Writes and reads barriers in one database. Safe from any thread."""

    def __init__(
        self,
        engine: Engine,
        table: sa.Table | None = None,
        *,
        wait_s: float = _DEFAULT_WAIT_S,
        now: Callable[[], float] = time,
    ) -> None:
        """`wait_s`: longest wait of a check for an open business transaction, whole seconds on MySQL;
        keep it below the timeout of the check."""
        self._engine = engine
        self._table = barrier_table(sa.MetaData()) if table is None else table
        self._wait_s = wait_s
        self._now = now

    @property
    def table(self) -> sa.Table:
        """The table of barriers, for `create` and for migrations."""
        return self._table

    def pass_through(self, session: Session | Connection, ref: TransactionRef) -> None:
        """Inserts `commit` in the caller's transaction; make it the first statement. Raises
        TransactionFenced, which must end that transaction. With an AsyncSession: `await
        session.run_sync(barrier.pass_through, ref)`."""
        insert = self._insert(ref, _COMMIT)
        try:
            if isinstance(session, Session):  # it may have several databases
                session.connection(bind_arguments={"clause": insert}).execute(insert)
            else:
                session.execute(insert)
        except IntegrityError as exc:
            raise TransactionFenced(
                f"the transaction {ref.tx_id} of {ref.biz_id} was decided before;"
                " roll it back and begin a new one"
            ) from exc

    def decide(self, ref: TransactionRef) -> StateReply:
        """Returns COMMIT or ROLLBACK, which stays true; UNKNOWN while the business transaction is open
        or the database does not answer. Never raises a database's error."""
        try:
            decision = self._decided(checked(ref))
        except (DBAPIError, PoolTimeout) as exc:
            cause = exc.orig if isinstance(exc, DBAPIError) else exc
            return StateReply(TransactionState.UNKNOWN, ref.biz_id, type(cause).__name__)
        if decision is None:
            return StateReply(TransactionState.UNKNOWN, ref.biz_id, "the barrier was removed")
        return StateReply(_STATES[decision], ref.biz_id, fenced=True)

    def remove_before(self, connection: Session | Connection, made_at_ms: int) -> int:
        """Deletes barriers that are older, and returns their number. Keep them longer than the look-back
        service asks, by days: without its barrier a late transaction passes."""
        old = sa.delete(self._table).where(self._table.c.made_at < made_at_ms)
        result: Any = connection.execute(old)
        return int(result.rowcount)

    def _decided(self, ref: TransactionRef) -> str | None:
        """Returns the decision. A second transaction reads it: no snapshot hides the winner's row."""
        try:
            with self._engine.connect() as connection, _short_wait(connection, self._wait_s):
                connection.execute(self._insert(ref, _ROLLBACK))
            return _ROLLBACK
        except IntegrityError:
            wanted = sa.select(self._table.c.decision).where(self._table.c.barrier == ref.digest)
            with self._engine.begin() as connection:
                return connection.execute(wanted).scalar_one_or_none()

    def _insert(self, ref: TransactionRef, decision: str) -> sa.Insert:
        return sa.insert(self._table).values(
            barrier=checked(ref).digest,
            **ref._asdict(),
            decision=decision,
            made_at=int(self._now() * _MS),
        )


@contextmanager
def _short_wait(connection: Connection, wait_s: float) -> Iterator[None]:
    """Begins a transaction whose waits for locks are bounded; the connection's own bound comes back."""
    ask, bound = _BOUNDS[connection.dialect.name]
    if not ask:
        with connection.begin():
            connection.exec_driver_sql(bound.format(int(wait_s * _MS)))
            yield
        return
    with connection.begin():
        before = connection.exec_driver_sql(ask).scalar_one()
        shortest = max(1, int(wait_s)) if connection.dialect.name in _IN_SECONDS else wait_s * _MS
        connection.exec_driver_sql(bound.format(int(shortest)))
    try:
        with connection.begin():
            yield
    finally:
        with connection.begin():
            connection.exec_driver_sql(bound.format(before))
