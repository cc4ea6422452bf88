"""Claims and marks of outbox rows: short transactions, fenced by a lease token.

A publisher claims rows in one transaction, publishes outside of any, and marks them in a second one. A mark
of a token that is no longer the row's writes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from datetime import date
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Row, text

from hongyan_client.outbox.clock import POSTGRESQL, SQLITE
from hongyan_client.outbox.engine import RELAY_WAITS
from hongyan_client.outbox.errors import OutboxRefused, outbox_errors
from hongyan_client.outbox.statements import MOST_BYTES, TakeStatements, statements_for
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
    key_hash: str | None = None
    """Name of topic and ordering key; None: no order."""
    created_day: date | None = None
    """The partition's day, on PostgreSQL."""


class ClaimedBatch(NamedTuple):
    """The rows of one claim, which share a token."""

    token: int
    rows: Sequence[ClaimedRow]
    seen: int
    """Due rows that were looked at. Those beyond `rows` wait for the head of their key, or for the next
    claim."""


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
        keep_sent: bool = True,
    ) -> None:
        """`statement_s`: longest time of a statement on PostgreSQL. `keep_sent`: acknowledged rows stay as
        SENT; else their mark deletes them."""
        self.engine = engine
        self.name = name
        self.is_postgres = engine.dialect.name == POSTGRESQL
        self.is_sqlite = engine.dialect.name == SQLITE
        self._sql = statements_for(name, engine.dialect.name)
        self._end_sent = self._sql.mark_sent if keep_sent else self._sql.drop_sent
        self._limits = {"statement_ms": str(round(statement_s * 1_000))}

    def claim_due(self, owner: str, lease_ms: int, limit: int) -> ClaimedBatch:
        """Takes due rows, the longest due first, and holds those behind the head of their key. A batch has
        at most `limit` rows, and at most `MOST_BYTES` of payload beside its last row."""
        return self._claim(self._sql.claim_due, self._sql.due, owner, lease_ms, limit=limit)

    def claim_these(self, ids: Sequence[int], owner: str, lease_ms: int) -> ClaimedBatch:
        """Takes those of the rows that are committed and that nobody took before."""
        sql, asked = self._sql, {"ids": list(ids), "limit": len(ids)}
        return self._claim(sql.claim_these, sql.these, owner, lease_ms, **asked)

    def mark(self, token: int, sent: Sequence[ClaimedRow], failed: Sequence[FailedRow] = ()) -> int:
        """Writes how the publication ended, with an alert for each parked row. Returns the number of rows
        that another publisher has taken meanwhile; nothing is written for them. An error that the database
        cannot store is written with escapes."""
        try:
            return self._mark(token, sent, failed)
        except OutboxRefused:
            escaped = [one._replace(error=ascii(one.error)[1:-1]) for one in failed]
            return self._mark(token, sent, escaped)

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
            with _only_writer(connection) if self.is_sqlite else nullcontext():
                yield connection

    def _claim(
        self, claim: Any, steps: TakeStatements, owner: str, lease_ms: int, **asked: Any
    ) -> ClaimedBatch:
        token = secrets.randbits(_TOKEN_BITS) | 1
        lease = {"owner": owner, "lease_ms": lease_ms, "token": token}
        with self.transaction() as connection:
            if self.is_postgres:
                found = connection.execute(claim, {**asked, **lease}).all()
                rows = [_claimed(row) for row in found if not row.waits]
            else:
                small = MOST_BYTES // max(1, asked["limit"])
                found = connection.execute(claim, {**asked, "small": small}).all()
                rows = self._take(connection, steps, found, lease)
        return ClaimedBatch(token, sorted(rows, key=_by_id), len(found))

    def _take(
        self,
        connection: Connection,
        steps: TakeStatements,
        found: Sequence[Row[Any]],
        lease: dict[str, Any],
    ) -> list[ClaimedRow]:
        """Takes rows and holds the others, in the claim's transaction. Returns those that it took."""
        keyed = [row.id for row in found if row.key_hash is not None]
        waiting: set[int] = set()
        if keyed:
            waiting = set(connection.execute(self._sql.waiting, {"ids": keyed}).scalars())
        free = _first_bytes([row for row in found if row.id not in waiting])
        if waiting:
            connection.execute(steps.hold, {"ids": sorted(waiting)})
        if not free:
            return []
        ids = [row.id for row in free]
        all_taken = connection.execute(steps.take, {**lease, "ids": ids}).rowcount == len(free)
        rows = [_claimed_before_update(row) for row in free]
        if all_taken and None not in [row.payload for row in rows]:
            return rows
        asked = {"ids": ids, "token": lease["token"]}
        taken = {row.id: row.payload for row in connection.execute(self._sql.taken, asked)}
        return [row._replace(payload=taken[row.id]) for row in rows if row.id in taken]

    def _mark(self, token: int, sent: Sequence[ClaimedRow], failed: Sequence[FailedRow]) -> int:
        with self.transaction() as connection:
            if self.is_postgres and not failed:
                connection.execute(_NOT_AWAITED)
            written = self._mark_sent(connection, token, sent)
            written += sum(self._mark_failed(connection, token, one) for one in failed)
        return len(sent) + len(failed) - written

    def _mark_sent(self, connection: Connection, token: int, sent: Sequence[ClaimedRow]) -> int:
        if not sent:
            return 0
        asked: dict[str, Any] = {"ids": [row.id for row in sent], "token": token}
        if self.is_postgres:
            days = {row.created_day for row in sent if row.created_day is not None}
            asked |= {"first_day": min(days), "last_day": max(days)}
        written = connection.execute(self._end_sent, asked).rowcount
        self._wake_behind(connection, {row.key_hash for row in sent if row.key_hash is not None})
        return written

    def wake_followers(self, connection: Connection, ids: Sequence[int]) -> None:
        """Makes the next held row of each of these rows' keys due, in the transaction that ends them."""
        self._wake_behind(
            connection, set(connection.execute(self._sql.keys, {"ids": ids}).scalars())
        )

    def _wake_behind(self, connection: Connection, keys: Set[str]) -> None:
        """Makes the next held row of each key due."""
        if not keys:
            return
        followers = connection.execute(self._sql.followers, {"keys": sorted(keys)})
        if next_ids := list(followers.scalars()):
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


@contextmanager
def _only_writer(connection: Connection) -> Iterator[None]:
    """Begins as the one writer of SQLite, unless the engine did. Its driver begins at the first write, and
    in autocommit never: another writer could change a row between its read and its update."""
    driver: Any = connection.connection.driver_connection
    if driver.in_transaction:
        yield
        return
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if driver.in_transaction:
            connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


_FIELDS: Final = len(ClaimedRow._fields)


def _claimed(row: Row[Any]) -> ClaimedRow:
    return ClaimedRow._make(row[:_FIELDS])


def _claimed_before_update(row: Row[Any]) -> ClaimedRow:
    """Returns the row as claimed; it was read before the update that counted the attempt. A large one has
    no payload yet."""
    claimed = _claimed(row)
    return claimed._replace(attempt=claimed.attempt + 1)


def _first_bytes(rows: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Returns the first rows, up to the one that reaches `MOST_BYTES`."""
    total, first = 0, list[Row[Any]]()
    for row in rows:
        if total >= MOST_BYTES:
            break
        first.append(row)
        total += row.size
    return first


def _by_id(row: ClaimedRow) -> int:
    return row.id
