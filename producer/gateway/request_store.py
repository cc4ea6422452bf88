"""Requests with an Idempotency-Key, in the ledger's database: one at a time, one answer for repeats.

    ∅ ─begin─▶ in progress (token, lease) ─finish─▶ answered
    in progress ─release, or its lease lapsed─▶ the next repeat takes it, with the same made_at
    in progress ─forget: nothing was published─▶ ∅

Ids and created_at follow from `made_at`, so a repeat on another gateway produces the same bytes.

`message_id` says what is sent, from the beginning: the id of a single notification, or the mark of a batch.
The ids of a batch that follow from the request begin with its time, as its mark does; they are made again
to find one. Each other id of a batch has a row of its own before it is published, whose name is no hash.

Until there is an answer, `answer` has the progress of a batch (batch_progress.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import text

from backends.sql.database import Database
from idempotency.transactions import Clock, LedgerPart
from message.ids import new_token
from producer.gateway.batch_progress import (
    FIRST_TRY,
    BatchProgress,
    progress_of,
    progress_text,
)
from producer.gateway.envelope_limits import MOST_ITEMS

LEASE_MS: Final = 60_000
"""Time for which a request that was killed keeps repeats away; above the longest publish."""
KEEP_MS: Final = 86_400_000
"""Time for which an answer is repeated."""
_PURGED: Final = 1_000
_TIME_DIGITS: Final = 12
"""Hex digits at the start of a derived id that are its time."""
_BEGIN: Final = text("""
INSERT INTO gateway_requests AS r
       (key_id, name, body_digest, token, lease_until, made_at, status, answer, message_id, expires_at)
VALUES (:key, :name, :digest, :token, :lease, :now, 0, '', :message, :expires)
ON CONFLICT (key_id, name) DO UPDATE
   SET token = excluded.token, lease_until = excluded.lease_until, status = 0,
       answer = CASE WHEN r.expires_at <= :now THEN ''
                     WHEN r.lease_until > 0 THEN '!' || r.answer
                     ELSE r.answer END,
       message_id = CASE WHEN r.expires_at <= :now THEN excluded.message_id ELSE r.message_id END,
       body_digest = excluded.body_digest,
       made_at = CASE WHEN r.expires_at <= :now THEN excluded.made_at ELSE r.made_at END,
       expires_at = excluded.expires_at
 WHERE r.expires_at <= :now
    OR (r.status = 0 AND r.lease_until <= :now AND r.body_digest = excluded.body_digest)
RETURNING made_at, answer""")
_KNOWN: Final = text("""
SELECT body_digest, lease_until, status, answer FROM gateway_requests
 WHERE key_id = :key AND name = :name""")
_FINISH: Final = text("""
UPDATE gateway_requests SET status = :status, answer = :answer
 WHERE key_id = :key AND name = :name AND token = :token AND status = 0""")
_RELEASE: Final = text("""
UPDATE gateway_requests SET lease_until = 0, answer = :answer
 WHERE key_id = :key AND name = :name AND token = :token AND status = 0""")
# A time that is over and not 0: the next try learns that this one left no word.
_INTERRUPT: Final = text("""
UPDATE gateway_requests SET lease_until = 1
 WHERE key_id = :key AND name = :name AND token = :token AND status = 0""")
_FORGET: Final = text("""
DELETE FROM gateway_requests
 WHERE key_id = :key AND name = :name AND token = :token AND status = 0""")
_KEEP_ID: Final = text("""
INSERT INTO gateway_requests
       (key_id, name, body_digest, token, lease_until, made_at, status, answer, message_id, expires_at)
SELECT key_id, 'id:' || :message, '', token, 0, made_at, 202, '', :message, expires_at
  FROM gateway_requests
 WHERE key_id = :key AND name = :name AND token = :token AND status = 0
ON CONFLICT (key_id, name) DO UPDATE SET expires_at = excluded.expires_at""")
_OWNED: Final = text("""
SELECT name, made_at, message_id FROM gateway_requests
 WHERE message_id IN (:message, :batch) AND message_id <> '' AND key_id = :key""")
_PURGE: Final = text("""
DELETE FROM gateway_requests WHERE (key_id, name) IN
 (SELECT key_id, name FROM gateway_requests WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)""")


class ClaimedRequest(NamedTuple):
    """This request is the one at work."""

    key: str
    name: str
    token: int
    made_at: int
    """Epoch milliseconds of the first try."""
    first: bool
    """Whether no try came before."""
    progress: BatchProgress
    """The notes of earlier tries."""

    def message_id(self, index: int = 0) -> str:
        """Returns the id of the request's notification of this index."""
        return derived_id(self.made_at, self.key, self.name, index)


class Answered(NamedTuple):
    """A repeat: the first answer."""

    status: int
    answer: str


class OtherBody(NamedTuple):
    """The key was used for another request."""


class InProgress(NamedTuple):
    """Another request with this key is at work."""

    wait_s: float


Begun = ClaimedRequest | Answered | OtherBody | InProgress


class RequestStore(LedgerPart):
    """Thread-safe. Every method raises LedgerError."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)

    def begin(self, key: str, name: str, digest: str, own_id: str | None = "") -> Begun:
        """Claims the request `name` (a hash) of an API key, or says why not. `own_id`: the id that a single
        notification names; empty: it names none; None: the request is a batch."""
        token = new_token()
        with self._begin() as (connection, now):
            asked = {"key": key, "name": name, "digest": digest, "token": token, "now": now}
            ends = {"lease": now + LEASE_MS, "expires": now + KEEP_MS}
            message = {"message": _sent_id(derived_id(now, key, name, 0), own_id)}
            begun = connection.execute(_BEGIN, asked | ends | message).one_or_none()
            if begun is not None:
                first = begun.made_at == now
                progress = FIRST_TRY if first else progress_of(begun.answer)
                return ClaimedRequest(key, name, token, begun.made_at, first, progress)
            row = connection.execute(_KNOWN, {"key": key, "name": name}).one_or_none()
        if row is None:  # purged or forgotten this moment
            return InProgress(1.0)
        if row.body_digest != digest:
            return OtherBody()
        if row.status:
            return Answered(row.status, row.answer)
        return InProgress(max(1.0, (row.lease_until - now) / 1_000))

    def note_ids(self, claimed: ClaimedRequest, message_ids: Collection[str]) -> None:
        """Records ids of a batch that it names itself, before they are published."""
        request = _of(claimed)
        # Sorted, so that two requests lock the same rows in the same order.
        rows = [request | {"message": one} for one in sorted(set(message_ids))]
        with self._transaction() as connection:
            if rows:
                connection.execute(_KEEP_ID, rows)

    def finish(self, claimed: ClaimedRequest, status: int, answer: str) -> bool:
        """Records the answer. Returns False if another request took over."""
        return self._ended(_FINISH, claimed, status=status, answer=answer)

    def release(self, claimed: ClaimedRequest, progress: BatchProgress | None = None) -> None:
        """Lets the next repeat try again, with the same ids. None: nobody knows what was reached."""
        if progress is None:
            self._ended(_INTERRUPT, claimed)
        else:
            self._ended(_RELEASE, claimed, answer=progress_text(progress))

    def _ended(self, statement: Any, claimed: ClaimedRequest, **values: int | str) -> bool:
        with self._transaction() as connection:
            return bool(connection.execute(statement, _of(claimed) | values).rowcount)

    def forget(self, claimed: ClaimedRequest) -> None:
        """Forgets a request of which nothing was published."""
        with self._transaction() as connection:
            connection.execute(_FORGET, _of(claimed))

    def sent_by(self, key: str, message_id: str) -> bool:
        """Returns whether a request of this API key made this notification."""
        asked = {"message": message_id, "batch": _batch_mark(message_id), "key": key}
        with self._transaction() as connection:
            rows = connection.execute(_OWNED, asked).all()
        if any(row.message_id == message_id for row in rows):
            return True
        indexes = range(MOST_ITEMS)
        return message_id in (derived_id(r.made_at, key, r.name, n) for r in rows for n in indexes)

    def purge(self) -> int:
        """Deletes expired requests, a batch. Returns their number."""
        with self._begin() as (connection, now):
            return connection.execute(_PURGE, {"now": now, "limit": _PURGED}).rowcount


def derived_id(made_at: int, key: str, name: str, index: int) -> str:
    """Returns a notification's id: a UUIDv7 of this time whose other bits follow from the request."""
    digest = hashlib.sha256(f"{key}\x1f{name}\x1f{index}".encode()).digest()
    rest = int.from_bytes(digest[:10])
    bits = made_at << 80 | 0x7 << 76 | (rest >> 62 & 0xFFF) << 64 | 0b10 << 62 | rest & (2**62 - 1)
    return UUID(int=bits).hex


def _batch_mark(message_id: str) -> str:
    """Returns the mark of each batch whose derived ids have the time of this id. No id is such a text."""
    return f"batch\x1f{message_id[:_TIME_DIGITS]}"


def _sent_id(derived: str, own_id: str | None) -> str:
    """Returns the `message_id` of a request's row. `derived`: the request's first derived id."""
    return _batch_mark(derived) if own_id is None else own_id or derived


def _of(claimed: ClaimedRequest) -> dict[str, object]:
    return {"key": claimed.key, "name": claimed.name, "token": claimed.token}
