"""Claims and marks of outbox rows: short transactions, fenced by a lease token.

A publisher claims rows in one transaction, publishes outside of any, and marks them in a second one. A mark
of a token that is no longer the row's writes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Row, text

from hongyan_client.outbox.clock import POSTGRESQL
from hongyan_client.outbox.engine import RELAY_WAITS
from hongyan_client.outbox.errors import outbox_errors
from hongyan_client.outbox.statements import statements_for
from hongyan_client.outbox.tables import DEFAULT_NAME, MAX_ERROR

_TOKEN_BITS: Final = 62
_BY_INDEX: Final = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
    " set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),"
    " set_config('statement_timeout', :statement_ms, true), set_config('lock_timeout', '5s', true),"
    " set_config('jit', 'off', true), set_config('idle_in_transaction_session_timeout', '5s', true)"
)
"""For one transaction, so that it holds behind PgBouncer, too. Statistics of a queue are always old. A
process that is paused in the middle loses its connection, since its locks would keep rows from others."""


_NOT_AWAITED: Final = text("SELECT set_config('synchronous_commit', 'off', true)")
"""For marks of acknowledged rows: a crash of the server that undoes one has the row sent again."""


class ClaimedRow(NamedTuple):
    """One row in the hands of a publisher."""

    id: int
    message_id: str
    topic: str
    msg_key: str
    headers: str
    attempt: int
    """This attempt's number, from 1."""
    max_attempts: int
    retry_base_ms: int
    retry_cap_ms: int
    payload: str


class ClaimedBatch(NamedTuple):
    """The rows of one claim, which share a token."""

    token: int
    rows: Sequence[ClaimedRow]
    seen: int
    """Due rows that were looked at; those beyond `rows` wait for the head of their key."""


class FailedRow(NamedTuple):
    """One row that was not acknowledged."""

    row: ClaimedRow
    error: str
    in_doubt: bool
    """Whether Kafka may have it."""
    delay_ms: int | None
    """Time until the next attempt; None: no more, the row is parked."""


class OutboxStore:
    """Any thread may use it. Every method raises OutboxTrouble alone."""

    def __init__(
        self,
        engine: Engine,
        name: str = DEFAULT_NAME,
        *,
        statement_s: float = RELAY_WAITS.statement_s,
    ) -> None:
        """`statement_s`: longest time of a statement on PostgreSQL."""
        self.engine = engine
        self.name = name
        self.is_postgres = engine.dialect.name == POSTGRESQL
        self._sql = statements_for(name, engine.dialect.name)
        self._limits = {"statement_ms": str(round(statement_s * 1_000))}

    def claim_due(self, owner: str, lease_ms: int, limit: int) -> ClaimedBatch:
        """Takes due rows, the longest due first, and holds those behind the head of their key."""
        return self._claim(self._sql.claim_due, owner, lease_ms, limit=limit)

    def claim_these(self, ids: Sequence[int], owner: str, lease_ms: int) -> ClaimedBatch:
        """Takes those of the rows that are committed and that nobody took before."""
        return self._claim(self._sql.claim_these, owner, lease_ms, ids=list(ids), limit=len(ids))

    def mark(self, token: int, sent: Sequence[ClaimedRow], failed: Sequence[FailedRow] = ()) -> int:
        """Writes how the publication ended, with an alert for each parked row. Returns the number of rows
        that another publisher has taken meanwhile; nothing is written for them."""
        with self.transaction() as connection:
            if self.is_postgres and not failed:
                connection.execute(_NOT_AWAITED)
            written = self._mark_sent(connection, token, sent)
            written += sum(self._mark_failed(connection, token, one) for one in failed)
        return len(sent) + len(failed) - written

    def give_back(self, token: int, rows: Sequence[ClaimedRow]) -> None:
        """Makes rows that were not handed to Kafka due again; the attempt does not count."""
        if rows:
            with self.transaction() as connection:
                asked = {"ids": [row.id for row in rows], "token": token}
                connection.execute(self._sql.give_back, asked)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yields a connection in a transaction. Raises OutboxTrouble."""
        with outbox_errors(self.name), self.engine.begin() as connection:
            if self.is_postgres:
                connection.execute(_BY_INDEX, self._limits)
            yield connection

    def _claim(self, statement: Any, owner: str, lease_ms: int, **asked: Any) -> ClaimedBatch:
        token = secrets.randbits(_TOKEN_BITS) | 1
        lease = {"owner": owner, "lease_ms": lease_ms, "token": token}
        with self.transaction() as connection:
            if self.is_postgres:
                found = connection.execute(statement, {**asked, **lease}).all()
                taken = [row for row in found if not row.waits]
            else:
                found = connection.execute(statement, asked).all()
                taken = self._take(connection, found, lease)
        rows = sorted((_claimed(row, not self.is_postgres) for row in taken), key=_by_id)
        return ClaimedBatch(token, rows, len(found))

    def _take(
        self, connection: Connection, found: Sequence[Row[Any]], lease: dict[str, Any]
    ) -> list[Row[Any]]:
        """Takes locked rows and holds the others, in the claim's transaction."""
        keyed = [row.id for row in found if row.key_hash is not None]
        waiting: set[int] = set()
        if keyed:
            waiting = set(connection.execute(self._sql.waiting, {"ids": keyed}).scalars())
        taken = [row for row in found if row.id not in waiting]
        if waiting:
            connection.execute(self._sql.hold, {"ids": sorted(waiting)})
        if taken:
            connection.execute(self._sql.take, {**lease, "ids": [row.id for row in taken]})
        return taken

    def _mark_sent(self, connection: Connection, token: int, sent: Sequence[ClaimedRow]) -> int:
        if not sent:
            return 0
        ids = [row.id for row in sent]
        written = connection.execute(self._sql.mark_sent, {"ids": ids, "token": token}).rowcount
        self.wake_followers(connection, ids)
        return written

    def wake_followers(self, connection: Connection, ids: Sequence[int]) -> None:
        """Makes the next held row of each of these rows' keys due, in the transaction that ends them."""
        next_ids = list(connection.execute(self._sql.followers, {"ids": ids}).scalars())
        if next_ids:
            connection.execute(self._sql.wake, {"ids": next_ids})

    def _mark_failed(self, connection: Connection, token: int, failed: FailedRow) -> int:
        row = failed.row
        mark = {
            "id": row.id,
            "token": token,
            "error": failed.error[:MAX_ERROR],
            "in_doubt": int(failed.in_doubt),
        }
        if failed.delay_ms is not None:
            again = {**mark, "delay_ms": failed.delay_ms}
            return connection.execute(self._sql.mark_retry, again).rowcount
        written = connection.execute(self._sql.mark_parked, mark).rowcount
        if written:
            text_of = f"parked after {row.attempt} attempts: {failed.error}"[:MAX_ERROR]
            alert = {
                "id": row.id,
                "message_id": row.message_id,
                "topic": row.topic,
                "text": text_of,
            }
            connection.execute(self._sql.alert, alert)
        return written


def _claimed(row: Row[Any], before_update: bool) -> ClaimedRow:
    """Returns the row as claimed; steps read it before their update counted the attempt."""
    claimed = ClaimedRow(*row[: len(ClaimedRow._fields)])
    return claimed._replace(attempt=claimed.attempt + 1) if before_update else claimed


def _by_id(row: ClaimedRow) -> int:
    return row.id
