"""`Outbox`: a notification is written in the business's own transaction, and goes out after its commit.

The transaction that writes the business's rows writes the notification's, so both are there or neither.
`hongyan relay` publishes it. A process with a `CommitPublisher` does so itself right after the commit.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, overload

from sqlalchemy import (
    Connection,
    Executable,
    MetaData,
    TwoPhaseTransaction,
    bindparam,
    event,
    insert,
    null,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from hongyan_client.outbox.clock import POSTGRESQL, DatabaseDay, DatabaseMillis
from hongyan_client.outbox.entry import DEFAULT_RETRY, OutboxEntry, RetryTerms, entry_of
from hongyan_client.outbox.key_followers import KeyFollowers
from hongyan_client.outbox.tables import DEFAULT_NAME, PARKED, PENDING, RECALLED, outbox_tables
from message.envelope import Notification
from message.vocabulary import DEFAULT_TOPIC_PREFIX

HEAD_START_MS: Final = 2_000
"""Time for which relays leave a row to the process that wrote it."""
NOTIFY_EVERY_S: Final = 0.01
_NOTIFY: Final = text("SELECT pg_notify(:channel, '')")
_COMMITTED: Final = "hongyan_outbox_rows"
"""With the outbox, the key of its rows in `Session.info`."""

SyncSession = Session | scoped_session[Any] | Connection
AsyncUnit = AsyncSession | AsyncConnection


class QueuedNotification(NamedTuple):
    """A notification in the outbox. It counts once the transaction has committed."""

    id: str
    """The notification's id; a recall names it."""
    row_id: int
    topic: str


class AfterCommit(Protocol):
    """Takes rows whose transaction has committed (hongyan_client/outbox/commit_publisher.py)."""

    def hand_over(self, row_ids: list[int]) -> None:
        """Returns at once and raises nothing."""
        ...


class Outbox:
    """Writes notifications into one outbox table. Any thread may use it."""

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        *,
        metadata: MetaData | None = None,
        topic_prefix: str = DEFAULT_TOPIC_PREFIX,
        retry: RetryTerms = DEFAULT_RETRY,
        after_commit: AfterCommit | None = None,
    ) -> None:
        """`metadata`: where the tables are defined; None: apart from the business's. Raises ValueError."""
        self.tables = outbox_tables(metadata if metadata is not None else MetaData(), name)
        self._prefix = topic_prefix
        self._retry = retry.checked()
        self._after_commit = after_commit
        self._notified_at = float("-inf")  # any thread writes it; a race notifies twice
        self._insert = insert(self.tables.rows)
        self._recall = self._recall_statement()
        rows = self.tables.rows
        self._states = select(rows.c.state).where(rows.c.message_id == bindparam("asked_id"))
        self._followers = KeyFollowers(rows)

    @overload
    def add(
        self,
        session: SyncSession,
        notification: Notification | Mapping[str, Any],
        *,
        send_at: datetime | int | None = ...,
        retry: RetryTerms | None = ...,
        traceparent: str | None = ...,
    ) -> QueuedNotification: ...

    @overload
    def add(
        self,
        session: AsyncUnit,
        notification: Notification | Mapping[str, Any],
        *,
        send_at: datetime | int | None = ...,
        retry: RetryTerms | None = ...,
        traceparent: str | None = ...,
    ) -> Coroutine[Any, Any, QueuedNotification]: ...

    def add(
        self,
        session: SyncSession | AsyncUnit,
        notification: Notification | Mapping[str, Any],
        *,
        send_at: datetime | int | None = None,
        retry: RetryTerms | None = None,
        traceparent: str | None = None,
    ) -> QueuedNotification | Coroutine[Any, Any, QueuedNotification]:
        """Writes the notification in the session's transaction; of an async session, await it. Raises
        EnvelopeError before anything is written, and what the database raises."""
        entry = entry_of(
            notification,
            topic_prefix=self._prefix,
            retry=retry or self._retry,
            send_at=send_at,
            traceparent=traceparent,
        )
        if isinstance(session, AsyncUnit):
            return self._add_async(session, entry)
        return self._add(session, entry)

    @overload
    def recall(self, session: SyncSession, message_id: str) -> bool: ...

    @overload
    def recall(self, session: AsyncUnit, message_id: str) -> Coroutine[Any, Any, bool]: ...

    def recall(
        self, session: SyncSession | AsyncUnit, message_id: str
    ) -> bool | Coroutine[Any, Any, bool]:
        """Takes back a notification that has not gone, in the session's transaction. Returns whether all of
        it is taken back, now or before. False: a part of it is in Kafka, may be, or is on its way; then
        `hongyan recall` is the way."""
        if isinstance(session, AsyncUnit):
            return self._recall_async(session, message_id)
        return self._take_back(session, message_id)

    def _add(self, session: SyncSession, entry: OutboxEntry) -> QueuedNotification:
        hand_over = not isinstance(session, Connection) and self._goes_at_once(entry)
        done: Any = session.execute(self._row(entry, hand_over))
        row_id = done.inserted_primary_key[0]
        if hand_over:
            inner: Any = session() if isinstance(session, scoped_session) else session
            self._note(inner, row_id)
        else:
            self._notify(session, entry)
        return QueuedNotification(entry.notification.id, row_id, entry.values["topic"])

    async def _add_async(self, session: AsyncUnit, entry: OutboxEntry) -> QueuedNotification:
        add: Any = self._add
        queued: QueuedNotification = await session.run_sync(add, entry)
        return queued

    async def _recall_async(self, session: AsyncUnit, message_id: str) -> bool:
        take_back: Any = self._take_back
        return bool(await session.run_sync(take_back, message_id))

    def _take_back(self, session: SyncSession, message_id: str) -> bool:
        connection, asked = self._connection(session), {"asked_id": message_id}
        if connection.execute(self._recall, asked).rowcount:
            self._followers.wake(connection, message_id)
        return set(connection.execute(self._states, asked).scalars()) == {RECALLED}

    def _connection(self, session: SyncSession) -> Connection:
        """Returns the connection of the outbox's table; a session may have several."""
        if isinstance(session, Connection):
            return session
        return session.connection(bind_arguments={"clause": self._insert})

    def _goes_at_once(self, entry: OutboxEntry) -> bool:
        return self._after_commit is not None and entry.send_at is None

    def _row(self, entry: OutboxEntry, hand_over: bool) -> Executable:
        now = DatabaseMillis()
        due: Any = now + HEAD_START_MS if hand_over else now
        return self._insert.values(
            **entry.values,
            next_at=due if entry.send_at is None else entry.send_at,
            created_at=now,
            created_day=DatabaseDay(),
        )

    def _notify(self, session: SyncSession, entry: OutboxEntry) -> None:
        """Wakes relays at the commit, not more often than they look after a wake-up: commits with a
        notification wait for each other. PostgreSQL prepares no transaction with a notification."""
        connection = self._connection(session)
        if connection.dialect.name != POSTGRESQL or entry.send_at is not None:
            return
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            return
        now = time.monotonic()
        if now - self._notified_at >= NOTIFY_EVERY_S:
            self._notified_at = now
            connection.execute(_NOTIFY, {"channel": self.tables.rows.name})

    def _note(self, session: Session, row_id: int) -> None:
        """Keeps the row for the hand-over at the end of the outermost transaction."""
        rows: list[int] | None = session.info.get((_COMMITTED, self))
        if rows is None:
            rows = session.info[_COMMITTED, self] = []
            event.listen(session, "after_commit", self._committed)
            event.listen(session, "after_rollback", self._forget)
        rows.append(row_id)

    def _committed(self, session: Session) -> None:
        """Hands rows over; a savepoint's end is none. Those that a savepoint undid are not found."""
        if session.in_nested_transaction() or self._after_commit is None:
            return
        kept = (_COMMITTED, self)
        rows, session.info[kept] = session.info.get(kept) or [], []
        if rows:
            self._after_commit.hand_over(rows)

    def _forget(self, session: Session) -> None:
        """Drops the rows of a transaction that was rolled back."""
        if not session.in_nested_transaction():
            session.info[_COMMITTED, self] = []

    def _recall_statement(self) -> Executable:
        rows = self.tables.rows
        return (
            update(rows)
            .where(
                rows.c.message_id == bindparam("asked_id"),
                rows.c.state.in_((PENDING, PARKED)),
                rows.c.maybe_sent == 0,
            )
            .values(state=RECALLED, next_at=null(), done_at=DatabaseMillis())
        )
