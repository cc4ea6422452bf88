"""Claims and settlements on SQLite: one writer at a time, so each batch is one short transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from backends.sql.database import Database
from idempotency.bounds import usable
from idempotency.claims.rows import (
    BEHIND,
    IN_LANE,
    RECALLED,
    ClaimBatch,
    ClaimRow,
    ExistingRow,
    OutcomeRow,
    name_in_lane,
)
from idempotency.claims.store import MS_PER_DAY, ClaimResult, ClaimStore, RerouteRow, TakeoverRow
from idempotency.error_mapping import connected
from idempotency.lines import ASLEEP_AT, Line, SqliteLines
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.outcomes.statements import announcer
from idempotency.payload_cipher import PayloadCipher
from message.receiver_hash import HashReceiver, no_hash
from message.states import State

_SLEEPS: Final = -1
"""`ClaimRow.delay_ms` of a row behind the head of its line."""

CLAIM: Final = """
INSERT INTO deliveries (
    delivery_key, token, state, reason, attempt, next_at, lane, message_id, biz_id, ordering_key,
    expires_at, policy_version, resend_of, kafka_topic, kafka_partition, kafka_offset, account,
    call_key, call_digest, receiver, body_digest, payload, template, receiver_hash,
    receiver_text_hash, called_at, day, created_at, updated_at, owner, owner_epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""

KEEP: Final = """
INSERT INTO payloads (message_id, body_digest, payload, day) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING"""

EPOCH: Final = "SELECT epoch FROM workers WHERE id = ?"

KNOWN: Final = """
SELECT delivery_key FROM deliveries WHERE delivery_key IN (SELECT value FROM json_each(?))"""

RECALLS: Final = "SELECT kind, name, made_at FROM recalls WHERE until > ?"

OPEN_LINE: Final = """
SELECT 1 FROM deliveries
 WHERE ordering_key = ? AND lane = ?
   AND ordering_key IS NOT NULL AND state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
   AND message_id <> ?
 LIMIT 1"""

# It takes no recalled row: recovery drops that one.
TAKE: Final = f"""
UPDATE deliveries AS d
   SET state = 'IN_FLIGHT', token = ?, attempt = attempt + 1, reason = NULL, next_at = NULL,
       called_at = ?, updated_at = ?, version = version + 1, owner = ?, owner_epoch = ?,
       account = ?, call_key = ?, call_digest = ?, policy_version = coalesce(?, policy_version)
 WHERE delivery_key = ? AND body_digest = ? AND state = 'RETRY' AND reason = 'given_back'
   AND {usable()}
   AND NOT EXISTS (SELECT 1 FROM recalls AS r
                    WHERE r.until > ? AND (r.kind = 'message' AND r.name = d.message_id
                          OR r.kind = 'lane' AND r.name = d.lane || ':' || d.message_id
                          OR r.kind = 'biz' AND r.name = d.biz_id AND r.made_at >= d.created_at))"""  # noqa: S608 - ours

SETTLE: Final = """
UPDATE deliveries
   SET state = ?, reason = ?, provider_id = coalesce(?, provider_id),
       account = coalesce(?, account),
       next_at = ?,
       attempt = attempt - ?, refusals = ?, repeats = ?, updated_at = ?,
       called_at = CASE WHEN ? IN ('UNKNOWN', 'SENT') THEN called_at END, version = version + 1
 WHERE delivery_key = ? AND token = ? AND state = 'IN_FLIGHT'"""

REROUTE: Final = """
UPDATE deliveries
   SET account = ?, call_key = ?, call_digest = ?, called_at = ?, updated_at = ?,
       attempt = attempt + 1, version = version + 1
 WHERE delivery_key = ? AND token = ? AND state = 'IN_FLIGHT'
RETURNING delivery_key, attempt"""

LOOK: Final = """
SELECT delivery_key, state, token, attempt, day, body_digest, reason, provider_id
  FROM deliveries WHERE delivery_key IN (SELECT value FROM json_each(?))"""


class SqliteBatches(ClaimStore):
    """Claims and settles; `now` is the clock, `epochs` those of the workers registered here."""

    def __init__(
        self,
        database: Database,
        sealer: PayloadCipher,
        epochs: dict[str, int],
        now: Callable[[], int],
        announced: AnnouncedLanes,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        super().__init__(sealer, announced, hash_receiver)
        self._announce = announcer(database, announced)
        self._database = database
        self._epochs = epochs
        self._now = now
        self._lines = SqliteLines()

    def _enter(
        self, batch: ClaimBatch, owner: str, ordered: bool, *, announces: bool
    ) -> ClaimResult:
        with self._writing() as connection:
            now = self._now()
            day = now // MS_PER_DAY
            asked, recalled = _without_recalled(connection, batch.rows, now)
            rows, behind = _in_line(connection, asked) if ordered else (asked, [])
            last = (day, now, now, owner, self._epoch(connection, owner))
            # Existing rows are read first: `executemany` counts skipped inserts only in sum.
            known = _known(connection, rows)
            new = [_inserted(row, now) + last for row in rows if row.key not in known]
            connection.executemany(CLAIM, new)
            if batch.shared:
                kept = [(*name, payload, day) for name, payload in batch.shared.items()]
                connection.executemany(KEEP, kept)
            if announces:
                entered = (row.key for row in rows if row.key not in known)
                self._announce(connection.execute, entered, now)
        return ClaimResult(day, list(known), behind, [key for key in recalled if key not in known])

    def _take_or_look(self, wanted: Sequence[TakeoverRow], owner: str) -> list[ExistingRow]:
        with self._writing() as connection:
            now, epoch = self._now(), self._epoch(connection, owner)
            taken = [_taken(w, now, owner, epoch) for w in wanted if w.takes]
            connection.executemany(TAKE, taken)
            return _look(connection, (w.key for w in wanted))

    def _change(self, changes: Sequence[OutcomeRow], *, announces: bool) -> int:
        with self._writing() as connection:
            return self._settled(connection, changes, self._now(), announces=announces)

    def _change_in_lines(
        self, changes: Sequence[OutcomeRow], lines: Iterable[Line], *, announces: bool
    ) -> int:
        with self._writing() as connection:
            now = self._now()
            changed = self._settled(connection, changes, now, announces=announces)
            self._lines.wake(connection.execute, lines, now)
        return changed

    def _settled(
        self, connection: Any, changes: Sequence[OutcomeRow], now: int, *, announces: bool
    ) -> int:
        """Writes the outcomes, with their batches if it announces. Returns how many."""
        rows = [_changed(change, now) for change in changes]
        if not announces:
            return int(connection.executemany(SETTLE, rows).rowcount)
        # `executemany` counts in sum: one statement each tells which rows were still ours.
        written = [
            change.key
            for change, row in zip(changes, rows, strict=True)
            if connection.execute(SETTLE, row).rowcount
        ]
        self._announce(connection.execute, written, now)
        return len(written)

    def _route(self, rows: Sequence[RerouteRow]) -> dict[str, int]:
        found: dict[str, int] = {}
        with self._writing() as connection:
            now = self._now()
            for key, _day, token, *call in rows:
                found |= dict(connection.execute(REROUTE, (*call, now, now, key, token)).fetchall())
        return found

    def _look(self, keys: Sequence[str]) -> list[ExistingRow]:
        with connected(self._database) as connection:
            return _look(connection, keys)

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Yields SQLite's one writer. Commits on success; an error closes the connection uncommitted."""
        with connected(self._database) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def _epoch(self, connection: Any, owner: str) -> int:
        if owner in self._epochs:
            return self._epochs[owner]
        row = connection.execute(EPOCH, (owner,)).fetchone()
        return int(row[0]) if row else 0


def _inserted(row: ClaimRow, now: int) -> tuple[Any, ...]:
    next_at = None if row.delay_ms is None else now + row.delay_ms
    if row.delay_ms == _SLEEPS:
        next_at = ASLEEP_AT
    called_at = now if row.state == State.IN_FLIGHT else None
    return (*row[:5], next_at, *row[6:-1], called_at)


def _taken(w: TakeoverRow, now: int, owner: str, epoch: int) -> tuple[Any, ...]:
    call = (w.account, w.call_key, w.call_digest, w.policy_version)
    return w.token, now, now, owner, epoch, *call, w.key, w.digest, now


def _changed(change: OutcomeRow, now: int) -> tuple[Any, ...]:
    key, _day, token, state, reason, provider_id, account, delay_ms, *counts = change
    next_at = None if delay_ms is None else now + delay_ms
    return state, reason, provider_id, account, next_at, *counts, now, state, key, token


def _known(connection: Any, rows: Iterable[ClaimRow]) -> set[str]:
    keys = msgspec.json.encode([row.key for row in rows]).decode()
    return {key for (key,) in connection.execute(KNOWN, (keys,))}


def _look(connection: Any, keys: Iterable[str]) -> list[ExistingRow]:
    found = connection.execute(LOOK, (msgspec.json.encode(list(keys)).decode(),))
    return [ExistingRow(*row) for row in found]


def _without_recalled(
    connection: Any, rows: Sequence[ClaimRow], now: int
) -> tuple[Sequence[ClaimRow], list[str]]:
    """Returns the rows, with recalled ones as dropped, and the keys of these."""
    found = connection.execute(RECALLS, (now,)).fetchall()
    if not found:
        return rows, []
    recalls = {(kind, name): made_at for kind, name, made_at in found}
    dropped = {row.key for row in rows if _is_recalled(row, recalls)}
    changes: dict[str, Any] = {
        "state": State.DROPPED,
        "reason": RECALLED,
        "attempt": 0,
        "delay_ms": None,
    }
    kept = [row._replace(**changes) if row.key in dropped else row for row in rows]
    return kept, list(dropped)


def _is_recalled(row: ClaimRow, recalls: dict[tuple[str, str], int]) -> bool:
    if row.state not in (State.IN_FLIGHT, State.RETRY, State.PARKED):
        return False
    by_biz = recalls.get(("biz", row.biz_id or ""), -1)
    by_lane = (IN_LANE, name_in_lane(row.lane, row.message_id)) in recalls
    return by_lane or ("message", row.message_id) in recalls or by_biz >= row.noted_at


def _in_line(connection: Any, rows: Sequence[ClaimRow]) -> tuple[list[ClaimRow], list[str]]:
    """Returns the rows with their place in line, and the keys of rows behind an earlier open one."""
    known = _known(connection, rows)
    heads: dict[tuple[str, str], str | None] = {}
    placed = [_placed(connection, row, heads) if row.key not in known else row for row in rows]
    behind = [row.key for row in placed if row.reason == BEHIND and row.attempt == 0]
    return placed, behind


def _placed(connection: Any, row: ClaimRow, heads: dict[tuple[str, str], str | None]) -> ClaimRow:
    """Returns the row with its place in line. `heads` has the message at the head of each line; None where
    the ledger has it already. Receivers of one message share a place."""
    if row.ordering_key is None or row.state not in (State.IN_FLIGHT, State.RETRY):
        return row
    line = (row.ordering_key, row.lane)
    if line not in heads:
        ahead = connection.execute(OPEN_LINE, (*line, row.message_id)).fetchone()
        heads[line] = row.message_id if ahead is None else None
    if heads[line] == row.message_id:
        return row
    if row.state != State.IN_FLIGHT:
        return row._replace(delay_ms=_SLEEPS)
    return row._replace(state=State.RETRY, reason=BEHIND, attempt=0, delay_ms=_SLEEPS)
